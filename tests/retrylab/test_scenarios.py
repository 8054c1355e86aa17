"""The judge and the command: expectations, invariants, and how a fault is named."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retrylab import Effect, Expect, Lab, LabError, scenario
from retrylab.judge import judge
from retrylab.scenario import TwinCode, collect
from tests.retrylab.sample_app import SampleApp, queue_resources

ROOT = Path(__file__).parents[2]
CHARGES = Effect("charge", "Charges", lambda item: str(item["reference"]))
CLAIMING = """
def handler(event, context):
    order = seen(event["Records"][0])
    dynamodb.put_item(TableName=TABLE, Item={"id": {"S": f"claim-{order}"}, "reference": {"S": "claim"}},
                      ConditionExpression="attribute_not_exists(id)")
    charge(order, key=order)
"""
CARELESS = """
def handler(event, context):
    charge(seen(event["Records"][0]))
"""


def story(expect: Expect, **more: Any) -> Any:
    @scenario(source="queue", injected="crash after the charge", effect=CHARGES, expect=expect, **more)
    def crash_after_the_charge(lab: Lab) -> None:
        lab.crash(side="after", on="Charges", attempt=1)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")

    return crash_after_the_charge


def test_a_repeated_effect_is_told_with_its_attempts_and_the_missing_claim(sample: SampleApp) -> None:
    assembly = sample.assembly(queue_resources(), CARELESS)
    verdict = judge(story(Expect(effects={"o-1": 1})), assembly, seed=1)
    assert verdict.problems == [
        "o-1: 2 x charge, wanted 1: App/Worker attempt 1 at 0.3 s (WITHOUT a claim); "
        "App/Worker attempt 2 at 60.3 s (WITHOUT a claim)"
    ]
    assert judge(story(Expect(effects={"o-1": 2})), assembly, seed=1).problems == []


def test_wrong_ends_and_deliveries_are_told(sample: SampleApp) -> None:
    assembly = sample.assembly(queue_resources(), CARELESS)
    expect = Expect(effects={"o-1": 2}, ended={"o-1": "App/Dead", "o-2": "completed"}, deliveries={"o-1": 1})
    assert judge(story(expect), assembly, seed=1).problems == [
        "o-1 ended at completed, wanted App/Dead",
        "o-2 ended at never sent, wanted completed",
        "o-1 was delivered 2 times, wanted 1",
    ]


def test_a_fault_that_never_strikes_fails_the_scenario(sample: SampleApp) -> None:
    @scenario(source="queue", injected="nothing", effect=CHARGES, expect=Expect(effects={"o-1": 1}))
    def misses(lab: Lab) -> None:
        lab.crash(side="after", operation="DeleteItem", on="Charges")
        lab.queue("Orders").send({"order": "o-1"}, "o-1")

    problems = judge(misses, sample.assembly(queue_resources(), CARELESS), seed=1).problems
    assert problems == ["the scenario is empty: the fault `crash after DeleteItem on Charges` never struck"]


def test_a_lost_event_breaks_an_invariant_even_when_nobody_asked(sample: SampleApp) -> None:
    @scenario(source="queue", injected="failing", effect=CHARGES, expect=Expect(effects={}))
    def loses(lab: Lab) -> None:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")

    code = "def handler(event, context): raise ValueError"
    resources = queue_resources(queue={"MessageRetentionPeriod": 120, "RedrivePolicy": {"Ref": "AWS::NoValue"}})

    @scenario(source="queue", injected="failing", effect=CHARGES, expect=Expect(effects={}))
    def loses_in_time(lab: Lab) -> None:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=200)

    problems = judge(loses_in_time, sample.assembly(resources, code), seed=1).problems
    assert problems == ["o-1 is lost: App/Orders retention of 120 s ran out"]


def test_a_naive_twin_must_show_its_harm(sample: SampleApp, tmp_path: Path) -> None:
    twins = tmp_path / "twins"
    twins.mkdir()
    (twins / "careless.py").write_text(
        "from app import charge, seen\n\ndef handler(event, context):\n    charge(seen(event['Records'][0]))\n"
    )
    twin = TwinCode("Worker", twins, "careless.handler")
    assembly = sample.assembly(queue_resources(), CLAIMING)
    shown = judge(story(Expect(effects={"claim": 1}), naive=Expect(effects={"o-1": 2}), twin=twin), assembly, seed=1)
    assert shown.naive is not None
    assert shown.naive.effects == {"o-1": 2}
    harmless = judge(story(Expect(effects={"claim": 1}), naive=Expect(effects={"o-1": 1}), twin=twin), assembly, seed=1)
    assert harmless.problems[-1].startswith("naive twin: o-1: 2 x charge, wanted 1")


def test_a_twin_needs_its_expectation() -> None:
    with pytest.raises(LabError, match="needs both `naive` and `twin`, or neither"):
        story(Expect(effects={}), naive=Expect(effects={}))


@pytest.fixture
def folder(sample: SampleApp, tmp_path: Path) -> Path:
    sample.assembly(queue_resources(), CARELESS)
    stories = tmp_path / "stories"
    stories.mkdir()
    (stories / "charges.py").write_text(
        "from retrylab import Effect, Expect, scenario\n"
        "CHARGES = Effect('charge', 'Charges', lambda item: str(item['reference']))\n"
        "@scenario(source='queue', injected='nothing', effect=CHARGES, expect=Expect(effects={'o-1': 1}))\n"
        "def all_well(lab):\n"
        "    lab.queue('Orders').send({'order': 'o-1'}, 'o-1')\n"
        "@scenario(source='queue', injected='crash', effect=CHARGES, expect=Expect(effects={'o-1': 1}))\n"
        "def crash_after(lab):\n"
        "    lab.crash(side='after', on='Charges', attempt=1)\n"
        "    lab.queue('Orders').send({'order': 'o-1'}, 'o-1')\n"
    )
    return stories


def command(folder: Path, *options: str, verb: str = "run") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "retrylab", verb, str(folder), "--assembly", str(folder.parent), *options],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=120,
    )  # fmt: skip


def test_the_command_ends_with_1_and_names_the_fault(folder: Path) -> None:
    done = command(folder)
    assert done.returncode == 1, done.stderr
    assert "FAIL crash after: o-1: 2 x charge, wanted 1" in done.stdout
    assert "2 scenarios, 1 as expected, 1 not." in done.stdout


def test_the_command_ends_with_0_when_all_is_well_and_tells_the_story(folder: Path) -> None:
    done = command(folder, "--only", "all well", "--trace", "all well")
    assert done.returncode == 0, done.stderr
    assert "App/Worker attempt 1" in done.stdout
    assert "effects: {'o-1': 1}; ended: {'o-1': 'completed'}" in done.stdout


def test_the_command_prints_equal_json_for_equal_runs_whatever_the_hash_seed(folder: Path) -> None:
    outputs = []
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-m", "retrylab", "run", str(folder), "--assembly", str(folder.parent), "--json"],
            capture_output=True, text=True, cwd=ROOT, check=False, timeout=120,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )  # fmt: skip
        assert done.returncode == 1, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    parsed = json.loads(outputs[0])
    assert [entry["ok"] for entry in parsed] == [True, False]
    assert parsed[1]["shared_code"]["effects"] == {"o-1": 2}
    assert any("crash after it" in line for line in parsed[1]["shared_code"]["trace"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--only", "nothing like it"),
            "no scenario's name contains 'nothing like it'; there are: all well; crash after",
        ),
        (("--assembly", "/nowhere"), "/nowhere: no manifest.json there"),
    ],
)
def test_the_command_ends_with_2_when_it_cannot_play(folder: Path, options: tuple[str, ...], message: str) -> None:
    done = command(folder, *options)
    assert done.returncode == 2
    assert message in done.stdout


def test_a_folder_without_scenarios_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no such folder"):
        collect(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LabError, match="no scenario there"):
        collect(tmp_path / "empty")


def problems_of(sample: SampleApp, play: Any) -> list[str]:
    declare = scenario(source="queue", injected="nothing", effect=CHARGES, expect=Expect(effects={}))
    assembly = sample.assembly(queue_resources(), "def handler(event, context): return None")
    return judge(declare(play), assembly, seed=1).problems


def test_a_scenario_that_sends_nothing_proves_nothing(sample: SampleApp) -> None:
    def idle(lab: Lab) -> None:
        pass

    assert problems_of(sample, idle) == ["the scenario is empty: it sent no event"]


def test_a_throttling_that_nobody_meets_fails_the_scenario(sample: SampleApp) -> None:
    def unmet(lab: Lab) -> None:
        lab.throttle("Worker", 0)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")

    assert problems_of(sample, unmet) == ["the scenario is empty: no invoke met the throttling of App/Worker"]


def test_a_fault_in_the_shadow_of_another_did_not_happen(sample: SampleApp) -> None:
    @scenario(source="queue", injected="two faults", effect=CHARGES, expect=Expect(effects={"o-1": 1}))
    def shadowed(lab: Lab) -> None:
        lab.fail("InternalServerError", 500, operation="PutItem", attempt=1)
        lab.crash(side="before", operation="PutItem", attempt=1)
        lab.queue("Orders").send({"order": "o-1"}, "o-1")

    problems = judge(shadowed, sample.assembly(queue_resources(), CARELESS), seed=1).problems
    assert problems == ["the scenario is empty: the fault `crash before PutItem in attempt 1` never struck"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda lab: lab.crash(foo=1), "raised TypeError"),
        (lambda _: sys.exit(0), r"raised SystemExit\(0\)"),
        (lambda lab: lab.at(-5, print), "at: -5 s; wanted 0 s or more"),
        (lambda lab: lab.slow(-1), "slow: -1 s; wanted 0 s or more"),
        (lambda lab: lab.throttle("Worker", -1), "throttle: -1 s; wanted 0 s or more"),
        (lambda lab: lab.put_item("Charges", {"id": 1.5}), "raised TypeError"),
    ],
)
def test_a_mistake_in_a_scenario_is_told_as_one(sample: SampleApp, mistake: Any, message: str) -> None:
    def wrong(lab: Lab) -> None:
        mistake(lab)

    with pytest.raises(LabError, match=message):
        problems_of(sample, wrong)


def test_a_source_the_lab_does_not_have_is_refused() -> None:
    with pytest.raises(LabError, match="source 'kafka'; wanted one of queue, event, stream"):
        scenario(source="kafka", injected="x", effect=CHARGES, expect=Expect(effects={}))


def test_a_module_with_a_syntax_error_is_named(tmp_path: Path) -> None:
    (tmp_path / "stories2").mkdir()
    (tmp_path / "stories2" / "broken.py").write_text("def oops(:\n")
    with pytest.raises(LabError, match=r"broken\.py: SyntaxError"):
        collect(tmp_path / "stories2")
