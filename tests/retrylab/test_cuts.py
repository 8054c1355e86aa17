"""Kill means kill, time is virtual, and what the lab cannot control is refused."""

import gc
import json
import os
import sys
import time
from pathlib import Path

import pytest

from retrylab import Lab, Refused, scheduler
from tests.retrylab.sample_app import SampleApp, orders, queue_resources

GUARDED = """
events = []

def handler(event, context):
    try:
        charge(seen(event["Records"][0]))
        charge("later")
    except BaseException as error:
        charge(f"except {type(error).__name__}")
        raise
    finally:
        charge("finally")
"""


@pytest.mark.parametrize("kind", ["crash", "hang"])
@pytest.mark.parametrize(("side", "done"), [("before", []), ("after", ["o-1"])])
def test_not_one_more_line_runs_after_a_cut(sample: SampleApp, kind: str, side: str, done: list[str]) -> None:
    with sample.lab(queue_resources(), GUARDED) as lab:
        getattr(lab, kind)(side=side, operation="PutItem", attempt=1)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=50)
        assert orders(lab) == done
        result = lab.attempts[0].result
        assert result is not None
        assert result.payload["errorType"] == {"crash": "Runtime.ExitError", "hang": "Sandbox.Timedout"}[kind]
        assert lab.attempts[0].ended_at == pytest.approx(10.25 if kind == "hang" else 0.25, abs=0.02)


def test_a_cut_attempt_stays_cut_when_the_run_is_over(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), GUARDED) as lab:
        lab.crash(side="after", operation="PutItem", attempt=1)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=50)
        writes = lab.writes
    gc.collect()
    assert [str(w.after["reference"]) for w in writes if w.after] == ["o-1"]


def test_5_2_a_killed_environment_is_cold_next_time_and_a_failed_one_is_warm(sample: SampleApp) -> None:
    code = """
    served = 0
    def handler(event, context):
        global served
        served += 1
        charge(f"served {served}")
        if event["Records"][0]["attributes"]["ApproximateReceiveCount"] == "1":
            raise ValueError
    """
    for cut, expected in ((False, ["served 1", "served 2"]), (True, ["served 1", "served 1"])):
        with sample.lab(queue_resources(), code) as lab:
            if cut:
                lab.crash(side="after", operation="PutItem", attempt=1)
            lab.queue("Orders").send({"order": "o-1"}, "o-1")
            lab.run()
            assert orders(lab) == expected


def test_5_3_the_timeout_is_the_functions_own(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        charge(str(context.get_remaining_time_in_millis()))
        time.sleep(1)
        charge(str(context.get_remaining_time_in_millis()))
        time.sleep(100)
        charge("never")
    """
    with sample.lab(queue_resources(timeout=7), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=20)
        assert orders(lab) == ["7000", "5990"]
        result = lab.attempts[0].result
        assert result is not None
        assert result.payload["errorMessage"].endswith("Task timed out after 7.00 seconds")


def test_every_clock_follows_virtual_time(sample: SampleApp) -> None:
    code = """
    from datetime import datetime, timezone
    def handler(event, context):
        before = time.time(), time.monotonic(), time.perf_counter(), datetime.now(timezone.utc)
        time.sleep(5)
        after = time.time(), time.monotonic(), time.perf_counter(), datetime.now(timezone.utc)
        charge(" ".join(str(round(b - a)) for a, b in zip(before[:3], after[:3])) + " " + str(after[3].year))
    """
    started = time.perf_counter()
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["5 5 5 2026"]
    assert time.perf_counter() - started < 5, "no real waiting"


def test_a_lost_response_makes_the_sdk_send_again(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        dynamodb.update_item(TableName=TABLE, Key={"id": {"S": "k"}}, UpdateExpression="ADD calls :one",
                             ExpressionAttributeValues={":one": {"N": "1"}})
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.lose_response(operation="UpdateItem", attempt=1)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert lab.items("Charges") == [{"id": "k", "calls": 2}]
        assert len(lab.attempts) == 1


def test_a_slow_call_ends_at_the_clients_read_timeout_while_the_service_goes_on(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        charge(seen(event["Records"][0]), key="k1")
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.slow(8, operation="PutItem", attempt=1)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        ended = lab.attempts[0].ended_at
        assert ended is not None
        assert 2.25 < ended < 3, "the client waits 2 s, tries again, and that try is quick"
        assert orders(lab) == ["o-1"]
        assert len([call for call in lab.trace.of("call") if "-> ok" in call.text]) == 2


def test_a_refused_call_surfaces_after_the_sdks_tries(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        try:
            charge(seen(event["Records"][0]))
        except dynamodb.exceptions.ProvisionedThroughputExceededException:
            return "gave up"
    """
    with sample.lab(queue_resources(), code) as lab:
        for nth in (1, 2, 3):
            lab.fail("ProvisionedThroughputExceededException", 400, operation="PutItem", nth=nth)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == []
        result = lab.attempts[0].result
        assert result is not None
        assert (result.end, result.payload) == ("returned", "gave up")


def test_work_given_to_an_executor_is_scheduled_and_cut_with_its_attempt(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            futures = [pool.submit(charge, f"o-{n}") for n in range(4)]
            concurrent.futures.wait(futures)
            charge(f"done after {time.monotonic():.2f}")
            [future.result() for future in futures]
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab)[:5] == ["o-0", "o-1", "o-2", "o-3", "done after 0.27"], "two at a time, 10 ms a call"
        assert len(lab.attempts) == 1
    with sample.lab(queue_resources(), code) as lab:
        lab.crash(side="after", operation="PutItem", nth=1, attempt=1)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=30)
        assert orders(lab) == ["o-0"]


def test_an_executors_error_reaches_the_handler(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            future = pool.submit(int, "x")
            try:
                future.result(timeout=3)
            except ValueError:
                charge("caught")
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["caught"]


def test_conditions_and_queues_between_workers_are_scheduled(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        box = queue.Queue()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            taken = pool.submit(lambda: box.get(timeout=4))
            pool.submit(lambda: (time.sleep(2), box.put("parcel")))
            charge(f"{taken.result()} at {time.monotonic():.2f}")
            late = pool.submit(lambda: box.get(timeout=1))
            charge(type(late.exception()).__name__)
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["parcel at 2.25", "Empty"]


def test_work_left_running_after_the_return_is_refused(sample: SampleApp) -> None:
    code = """
    pool = concurrent.futures.ThreadPoolExecutor() if False else None
    def handler(event, context):
        executor = concurrent.futures.ThreadPoolExecutor()
        executor.submit(time.sleep, 5)
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        with pytest.raises(Refused, match="returned while work it gave to an executor was still running"):
            lab.run()


@pytest.mark.enable_socket
@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("threading.Thread(target=print).start()", r"raw thread.*\(Thread.start\)"),
        ("socket.create_connection(('127.0.0.1', 80))", r"a connection outside of boto3 \(socket.getaddrinfo\)"),
        ("__import__('urllib.request').request.urlopen('https://example.com')", r"attempt 1 used a connection"),
        ("os.system('true')", r"a subprocess \([a-z]+.system\)"),
        ("os.fork()", r"a subprocess \([a-z]+.fork\)"),
        ("os.kill(os.getpid(), 15)", r"a signal \([a-z]+.kill\)"),
        ("__import__('select').select([], [], [], 1)", r"a wait for sockets \(select.select\)"),
        ("__import__('_thread').start_new_thread(print, ())", r"a raw thread"),
        ("socket.socket().connect(('127.0.0.1', 9))", r"a connection outside of boto3 \(socket.connect\)"),
        ("subprocess.run(['true'])", r"a subprocess \(Popen.__init__\)"),
        ("__import__('asyncio').new_event_loop()", r"asyncio event loop"),
        (
            "boto3.client('sqs').list_queues()",
            r"App/Worker called sqs:ListQueues, which the lab does not model",
        ),
        (
            "dynamodb.get_item(TableName='other', Key={'id': {'S': 'a'}})",
            r"called GetItem on table 'other', which no template of the assembly holds; there are: app-Charges",
        ),
    ],
)
def test_what_the_lab_cannot_control_is_refused_by_name(sample: SampleApp, statement: str, named: str) -> None:
    code = f"""
    def handler(event, context):
        try:
            {statement}
        except BaseException:
            pass
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        with pytest.raises(Refused, match=named):
            lab.run()


RANDOM = """
def handler(event, context):
    charge(f"{uuid.uuid4()} {random.random()} {secrets.token_hex(4)} {os.urandom(4).hex()}")
"""


def test_equal_runs_give_equal_traces_and_another_seed_another_trace(sample: SampleApp) -> None:
    stories = []
    for seed in (1, 1, 2):
        with sample.lab(queue_resources(), RANDOM, seed=seed) as lab:
            lab.crash(side="after", operation="PutItem", attempt=1)
            lab.queue("Orders").send({"order": "o-1"}, "o-1")
            lab.run()
            stories.append((lab.trace.story(), orders(lab)))
    assert stories[0] == stories[1]
    assert stories[0] != stories[2]


def test_the_process_is_as_it_was_after_a_run(sample: SampleApp) -> None:
    before = dict(os.environ), list(sys.path), sys.stdout, "app" in sys.modules
    with sample.lab(queue_resources(), "def handler(event, context): print('hello')") as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert lab.output.getvalue() == "hello\n"
        assert sys.stdout is before[2], "a test that prints between two steps prints to its own output"
    assert (dict(os.environ), list(sys.path), sys.stdout, "app" in sys.modules) == before
    moments = time.monotonic(), time.time()
    time.sleep(0.01)
    assert time.monotonic() > moments[0]
    assert time.time() > moments[1]


def test_importing_a_handler_leaves_no_bytecode_in_its_asset(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), RANDOM) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
    assert not list(Path(sample.folder).rglob("__pycache__"))


def test_a_response_that_is_no_json_is_a_function_error(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), "def handler(event, context): return {1, 2}") as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=30)
        result = lab.attempts[0].result
        assert result is not None
        assert result.payload["errorType"] == "Runtime.MarshalError"


def test_a_twin_replaces_the_code_and_the_trace_says_so(sample: SampleApp, tmp_path: Path) -> None:
    twin = tmp_path / "twins"
    twin.mkdir()
    (twin / "careless.py").write_text("from app import charge\n\ndef handler(event, context):\n    charge('twin')\n")
    with sample.lab(queue_resources(), RANDOM) as lab:
        lab.replace_code("Worker", twin, "careless.handler")
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["twin"]
        assert "code replaced by careless.handler (twins)" in lab.trace.story()


def test_a_variable_can_be_changed_for_a_run_and_only_one_that_exists(sample: SampleApp) -> None:
    code = "def handler(event, context): charge(os.environ['MODE'])"
    resources = queue_resources()
    resources["Worker"]["Properties"]["Environment"]["Variables"]["MODE"] = "as deployed"
    with sample.lab(resources, code) as lab:
        lab.set_variable("Worker", "MODE", "changed")
        with pytest.raises(Exception, match="has no variable MODUS; it has: MODE, TABLE"):
            lab.set_variable("Worker", "MODUS", "x")
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["changed"]
        assert "variable MODE set to 'changed' (template: 'as deployed')" in lab.trace.story()


def test_the_event_is_a_copy_each_time(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        charge(str(len(event["Records"])))
        event["Records"].clear()
        raise ValueError
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["1", "1", "1"]
        assert isinstance(lab, Lab)
        assert json.loads(lab.attempts[0].payload)["Records"]


def test_a_handler_that_ends_its_process_is_a_crash_and_not_the_end_of_the_lab(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), "def handler(event, context): os._exit(0)") as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert [attempt.result.end for attempt in lab.attempts if attempt.result] == ["crashed"] * 3
        assert len(lab.messages("Dead")) == 1


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_lock_held_over_a_call_makes_other_workers_wait_on_virtual_time(sample: SampleApp, kind: str) -> None:
    code = f"""
    guard = threading.{kind}()

    def work(name):
        with guard:
            begun = time.monotonic()
            charge(f"{{name}} alone")
            charge(f"{{name}} for {{time.monotonic() - begun:.2f}} s")

    def handler(event, context):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for future in [pool.submit(work, name) for name in "ab"]:
                future.result()
        charge(str(guard.acquire(timeout=1)))
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["a alone", "a for 0.01 s", "b alone", "b for 0.01 s", "True"]


def test_an_rlock_is_entered_again_by_its_owner_only(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        guard = threading.RLock()
        with guard, guard, concurrent.futures.ThreadPoolExecutor() as pool:
            charge(str(pool.submit(guard.acquire, False).result()))
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["False"]


@pytest.mark.parametrize(
    "loop", ["while True: pass", "while time.time() < 9e9: pass", "while context.get_remaining_time_in_millis(): pass"]
)
def test_a_handler_that_only_computes_is_refused_instead_of_hanging_the_lab(
    sample: SampleApp, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(scheduler, "BUSY_LIMIT", 0.3)
    with sample.lab(queue_resources(), f"def handler(event, context):\n    {loop}") as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        with pytest.raises(Refused, match=r"computed for 0.3 s of real time without a call or a sleep"):
            lab.run()


def test_5_6_an_environment_whose_init_failed_is_never_warm(sample: SampleApp) -> None:
    code = """
    dynamodb.put_item(TableName=TABLE, Item={"id": {"S": "init"}, "reference": {"S": "init"}})

    def handler(event, context):
        charge("ran")
    """
    with sample.lab(queue_resources(), code) as lab:
        for nth in (1, 2, 3):
            lab.fail("InternalServerError", 500, operation="PutItem", attempt=1, nth=nth)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert orders(lab) == ["init", "ran"]
        assert lab.trace.story().count("cold start") == 2


@pytest.mark.parametrize(
    "body",
    [
        "class Mute(Exception):\n        def __str__(self): raise ValueError\n    raise Mute",
        "deep = []\n    for _ in range(200_000): deep = [deep]\n    return deep",
        "sys.stdout.buffer.write(b'raw'); sys.stderr.write('aside'); raise ValueError",
    ],
)
def test_odd_handlers_are_function_errors_and_leave_the_process_whole(sample: SampleApp, body: str) -> None:
    before = dict(os.environ)
    with sample.lab(queue_resources(), f"import sys\n\ndef handler(event, context):\n    {body}") as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert [attempt.result.end for attempt in lab.attempts if attempt.result] == ["raised"] * 3
    assert dict(os.environ) == before


def test_what_a_handler_prints_is_part_of_its_story(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), "def handler(event, context): print('reached the provider')") as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert "App/Worker attempt 1         prints reached the provider" in lab.trace.story()
