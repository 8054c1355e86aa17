"""SQS rules, each named by its number in the fact sheet."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrylab import Lab, LabError, Parameters
from retrylab.responses import WHOLE_BATCH, failed_identifiers
from tests.retrylab.sample_app import SampleApp, orders, queue_resources

THROTTLED = 14
"""The mapping tries at 0, 1, 3, 7, 15 s: a throttle that ends now lets the batch start at 15 s."""

CHARGE_ALL = """
def handler(event, context):
    for record in event["Records"]:
        charge(seen(record))
    return {"batchItemFailures": []}
"""


def test_3_2_1_success_deletes_and_failure_waits_for_visibility(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        for record in event["Records"]:
            charge(seen(record))
            if record["attributes"]["ApproximateReceiveCount"] == "1":
                raise ValueError("first time")
    """
    with sample.lab(queue_resources(), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        starts = [attempt.started for attempt in lab.attempts]
        assert orders(lab) == ["o-1", "o-1"]
        assert starts == [0.0, 60.0]
        assert lab.messages("Orders") == []


def test_3_2_6_exactly_max_receive_count_deliveries_then_the_next_receive_moves_it(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), "def handler(event, context): raise ValueError('always')") as lab:
        message = lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert len(lab.attempts) == 3
        assert lab.last_change == 180.0, "moved on the receive attempt after the third visibility timeout"
        assert [m.message_id for m in lab.messages("Dead")] == [message.message_id]
        assert lab.ledger.events[0].ended == "App/Dead"


def test_3_2_7_time_in_the_source_counts_in_the_dead_letter_queue(sample: SampleApp) -> None:
    resources = queue_resources(dead_letters={"MessageRetentionPeriod": 200})
    with sample.lab(resources, "def handler(event, context): raise ValueError('always')") as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=199)
        assert len(lab.messages("Dead")) == 1
        lab.run(until=201)
        assert lab.messages("Dead") == [], "gone 20 s after it arrived: the clock began at the first enqueue"


def test_queue_retention_without_dead_letters_is_a_loss(sample: SampleApp) -> None:
    resources = queue_resources(queue={"MessageRetentionPeriod": 120, "RedrivePolicy": {"Ref": "AWS::NoValue"}})
    with sample.lab(resources, "def handler(event, context): raise ValueError('always')") as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run(until=500)
        event = lab.ledger.events[0]
        assert event.state == "lost"
        assert event.why == "App/Orders retention of 120 s ran out"


def test_3_3_partial_response_leaves_only_the_listed_message(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        failed = []
        for record in event["Records"]:
            if seen(record) == "bad":
                failed.append({"itemIdentifier": record["messageId"]})
            else:
                charge(seen(record))
        return {"batchItemFailures": failed}
    """
    with sample.lab(queue_resources(), code) as lab:
        for order in ("o-1", "bad", "o-2"):
            lab.queue("Orders").send({"order": order}, order)
        lab.run()
        assert orders(lab) == ["o-1", "o-2"]
        assert {e.label: e.deliveries for e in lab.ledger.events} == {"o-1": 1, "bad": 3, "o-2": 1}
        assert [m.label for m in lab.messages("Dead")] == ["bad"]


def test_3_3_without_the_setting_a_partial_response_deletes_everything(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        return {"batchItemFailures": [{"itemIdentifier": r["messageId"]} for r in event["Records"]]}
    """
    with sample.lab(queue_resources(mapping={"FunctionResponseTypes": []}), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        assert len(lab.attempts) == 1
        assert lab.messages("Orders") == []
        assert lab.messages("Dead") == []


FIELD = json.loads((Path(__file__).parent / "field_cases" / "a_sqs_responses.json").read_text())["cases"]


@pytest.mark.parametrize("case", FIELD, ids=lambda case: f"{case['case']} {case['name']}")
def test_responses_of_the_field(case: dict[str, Any]) -> None:
    batch, response = case["input"]["batch"], case["input"]["response"]
    failed = failed_identifiers(response, batch)
    back = batch if failed is WHOLE_BATCH else [m for m in batch if m in failed]
    assert back == case["expect"]["returned_to_queue"]


def test_3_2_4_a_throttled_batch_is_tried_until_its_visibility_ends_and_costs_a_receive(
    sample: SampleApp,
) -> None:
    with sample.lab(queue_resources(), CHARGE_ALL) as lab:
        message = lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.throttle("Worker", 70)
        lab.run()
        assert message.receive_count == 2
        assert len(lab.attempts) == 1
        assert lab.attempts[0].started >= 70


def test_3_2_4_throttles_alone_can_dead_letter_a_message_that_never_ran(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), CHARGE_ALL) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.throttle("Worker", 400)
        lab.run()
        assert lab.attempts == []
        assert len(lab.messages("Dead")) == 1


def test_3_1_4_a_visibility_below_the_rule_delivers_a_running_message_again(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        time.sleep(9)
        charge(seen(event["Records"][0]))
        return {}
    """
    with sample.lab(queue_resources(queue={"VisibilityTimeout": 20}), code) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.throttle("Worker", THROTTLED)
        lab.run()
        assert orders(lab) == ["o-1", "o-1"]
        assert len(lab.findings) == 1
        assert "delivered again at 20.0 s while its earlier delivery was still running" in lab.findings[0]
        assert "VisibilityTimeout 20 s is too short, wanted at least 6 x 10 s" in lab.findings[0]


def test_3_1_4_a_visibility_below_the_rule_wastes_receives_on_throttles(sample: SampleApp) -> None:
    for visibility, findings in ((20, 1), (60, 0)):
        with sample.lab(queue_resources(queue={"VisibilityTimeout": visibility}), CHARGE_ALL) as lab:
            lab.queue("Orders").send({"order": "o-1"}, "o-1")
            lab.throttle("Worker", 19)
            lab.run()
            assert len([f for f in lab.findings if "used up a receive at 20.0 s" in f]) == findings


def test_3_1_5_a_function_timeout_above_the_visibility_is_what_deployment_refuses(sample: SampleApp) -> None:
    assembly = sample.assembly(queue_resources(queue={"VisibilityTimeout": 30}, timeout=60), CHARGE_ALL)
    with pytest.raises(LabError, match=r"VisibilityTimeout 30 s is less than App/Worker Timeout 60 s"):
        Lab(assembly)


def test_3_1_1_batches_close_at_their_size_and_window(sample: SampleApp) -> None:
    with sample.lab(queue_resources(mapping={"BatchSize": 2, "MaximumBatchingWindowInSeconds": 5}), CHARGE_ALL) as lab:
        for number in range(3):
            lab.queue("Orders").send({"order": f"o-{number}"}, f"o-{number}")
        lab.run()
        assert [(a.started, len(json.loads(a.payload)["Records"])) for a in lab.attempts] == [
            (0.0, 2),
            (5.0, 1),
        ]


def test_3_2_5_maximum_concurrency_stops_reading(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        time.sleep(5)
    """
    mapping = {"BatchSize": 1, "ScalingConfig": {"MaximumConcurrency": 2}}
    with sample.lab(queue_resources(mapping=mapping), code) as lab:
        for number in range(4):
            lab.queue("Orders").send({"order": f"o-{number}"}, f"o-{number}")
        lab.run()
        assert [round(attempt.started) for attempt in lab.attempts] == [0, 0, 5, 5]
        assert {e.deliveries for e in lab.ledger.events} == {1}


def test_3_2_12_a_duplicate_delivery_runs_beside_the_first(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), CHARGE_ALL) as lab:
        queue = lab.queue("Orders")
        message = queue.send({"order": "o-1"}, "o-1")
        lab.at(0.255, lambda: queue.deliver_again(message))
        lab.run()
        assert orders(lab) == ["o-1", "o-1"]
        assert lab.findings == [], "a planned duplicate is no fault of the template"
        assert lab.messages("Orders") == []


def test_a_receipt_that_a_later_receive_replaced_may_not_delete(sample: SampleApp) -> None:
    code = """
    def handler(event, context):
        first = event["Records"][0]["attributes"]["ApproximateReceiveCount"] == "1"
        time.sleep(9 if first else 0)
        if not first:
            raise ValueError("the second delivery fails")
    """
    left = {}
    for deletes in (False, True):
        with sample.lab(
            queue_resources(queue={"VisibilityTimeout": 20}), code, Parameters(stale_receipt_deletes=deletes)
        ) as lab:
            message = lab.queue("Orders").send({"order": "o-1"}, "o-1")
            lab.throttle("Worker", THROTTLED)
            lab.run()
            left[deletes] = message.receive_count
    assert left == {False: 3, True: 2}


def test_the_record_has_the_exact_shape_of_the_service(sample: SampleApp) -> None:
    with sample.lab(queue_resources(), CHARGE_ALL) as lab:
        lab.queue("Orders").send({"order": "o-1"}, "o-1")
        lab.run()
        record = json.loads(lab.attempts[0].payload)["Records"][0]
        assert set(record) == {
            "messageId", "receiptHandle", "body", "attributes", "messageAttributes", "md5OfBody", "eventSource",
            "eventSourceARN", "awsRegion",
        }  # fmt: skip
        assert set(record["attributes"]) == {
            "ApproximateReceiveCount", "SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp",
        }  # fmt: skip
        assert record["md5OfBody"] == hashlib.md5(record["body"].encode(), usedforsecurity=False).hexdigest()
        assert record["attributes"]["SentTimestamp"] == "1767225600000"


@given(delay=st.floats(min_value=0, max_value=5), visibility=st.integers(min_value=10, max_value=43_200))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_message_comes_back_whatever_the_fractions_of_its_times(
    sample: SampleApp, delay: float, visibility: int
) -> None:
    code = "def handler(event, context): raise ValueError"
    with sample.lab(queue_resources(queue={"VisibilityTimeout": visibility}), code) as lab:
        lab.at(delay, lambda: lab.queue("Orders").send({"order": "o-1"}, "o-1"))
        lab.run()
        assert len(lab.attempts) == 3
        assert len(lab.messages("Dead")) == 1
