"""DynamoDB stream rules, each named by its number in the fact sheet."""

import json
from pathlib import Path
from typing import Any

import pytest

from retrylab import Lab, Parameters
from retrylab.responses import WHOLE_BATCH, failed_identifiers
from tests.retrylab.sample_app import SampleApp, orders, stream_resources

RAISE_ON_BAD = """
def handler(event, context):
    for record in event["Records"]:
        order = record["dynamodb"]["Keys"]["id"]["S"]
        if order == "bad":
            raise ValueError("bad record")
        charge(order, key=order)
"""
REPORT_BAD = """
def handler(event, context):
    for record in event["Records"]:
        order = record["dynamodb"]["Keys"]["id"]["S"]
        if order == "bad":
            return {"batchItemFailures": [{"itemIdentifier": record["dynamodb"]["SequenceNumber"]}]}
        charge(order, key=order)
    return {"batchItemFailures": []}
"""


def fill(lab: Lab, *ids: str) -> None:
    for number, name in enumerate(ids):
        lab.put_item("Source", {"id": name, "n": number})


def batches(lab: Lab) -> list[list[str]]:
    return [
        [record["dynamodb"]["Keys"]["id"]["S"] for record in json.loads(attempt.payload)["Records"]]
        for attempt in lab.attempts
    ]


def test_4_2_1_a_batch_comes_in_order_and_as_one(sample: SampleApp) -> None:
    with sample.lab(stream_resources(), RAISE_ON_BAD) as lab:
        fill(lab, "a", "b", "c")
        lab.run()
        assert batches(lab) == [["a", "b", "c"]]
        assert {event.state for event in lab.ledger.events} == {"completed"}


def test_4_2_3_halving_isolates_one_record_and_spends_no_retry(sample: SampleApp) -> None:
    with sample.lab(stream_resources(), RAISE_ON_BAD) as lab:
        fill(lab, "a", "b", "bad", "d")
        lab.run()
        assert batches(lab) == [
            ["a", "b", "bad", "d"], ["a", "b"], ["bad", "d"], ["bad"], ["bad"], ["bad"], ["d"],
        ]  # fmt: skip
        assert orders(lab) == ["a", "b", "d"]
        ((key, body),) = lab.objects("Bucket").items()
        record = json.loads(body)
        assert record["requestContext"]["condition"] == "RetryAttemptsExhausted"
        assert record["requestContext"]["approximateInvokeCount"] == 3
        assert key.startswith(
            "aws/lambda/mapping-Mapping/shardId-00000001767225600000-1a2b3c4d/2026/01/01/2026-01-01T00.00."
        )


def test_4_3_the_object_keeps_the_payload_as_a_string_and_a_queue_gets_a_pointer(sample: SampleApp) -> None:
    with sample.lab(stream_resources(), RAISE_ON_BAD) as lab:
        fill(lab, "bad")
        lab.run()
        record = json.loads(next(iter(lab.objects("Bucket").values())))
        payload = json.loads(record.pop("payload"))
        assert payload == json.loads(lab.attempts[0].payload)
        info = record["DDBStreamBatchInfo"]
        assert info["batchSize"] == 1
        assert info["startSequenceNumber"] == info["endSequenceNumber"]
        assert info["approximateArrivalOfFirstRecord"] == "2026-01-01T00:00:00Z"
        assert record["responseContext"]["functionError"] == "Unhandled"
        assert record["requestContext"]["functionArn"].endswith("function:app-Worker"), "unqualified, unlike async"
    with sample.lab(stream_resources(destination="Failed"), RAISE_ON_BAD) as lab:
        fill(lab, "bad")
        lab.run()
        assert "payload" not in json.loads(lab.messages("Failed")[0].body)


def test_4_2_4_a_partial_response_checkpoints_before_the_lowest_number(sample: SampleApp) -> None:
    with sample.lab(stream_resources(mapping={"MaximumRetryAttempts": 0}), REPORT_BAD) as lab:
        fill(lab, "a", "b", "bad", "d")
        lab.run()
        assert batches(lab)[:2] == [["a", "b", "bad", "d"], ["bad", "d"]]
        assert orders(lab) == ["a", "b"]


def test_4_2_7_progress_restarts_the_count(sample: SampleApp) -> None:
    with sample.lab(stream_resources(mapping={"MaximumRetryAttempts": 3}), REPORT_BAD) as lab:
        fill(lab, "a", "b", "bad")
        lab.run()
        assert batches(lab) == [["a", "b", "bad"]] + [["bad"]] * 4
        record = json.loads(next(iter(lab.objects("Bucket").values())))
        assert record["requestContext"]["approximateInvokeCount"] == 4
        assert record["responseContext"]["functionError"] is None


def test_a_partial_report_without_progress_gives_up_the_batch_whole_unless_it_splits(
    sample: SampleApp,
) -> None:
    for splits, done in ((False, []), (True, ["d"])):
        with sample.lab(stream_resources(), REPORT_BAD, Parameters(partial_report_splits=splits)) as lab:
            fill(lab, "bad", "d")
            lab.run()
            assert orders(lab) == done


def test_4_2_8_records_over_the_age_limit_leave_one_by_one(sample: SampleApp) -> None:
    mapping = {
        "MaximumRecordAgeInSeconds": 60,
        "MaximumRetryAttempts": -1,
        "BisectBatchOnFunctionError": False,
    }
    with sample.lab(stream_resources(mapping=mapping), RAISE_ON_BAD) as lab:
        fill(lab, "bad")
        lab.at(55, lambda: fill(lab, "late"))
        lab.run()
        record = json.loads(next(iter(lab.objects("Bucket").values())))
        assert record["requestContext"]["condition"] == "RecordAgeExceeded"
        assert "responseContext" not in record
        assert orders(lab) == ["late"], "the shard goes on behind the record that was given up"
        assert record["requestContext"]["approximateInvokeCount"] == 7, (
            "0.5 s doubling: 0, .5, 1.5, 3.5, 7.5, 15.5, 31.5"
        )


def test_4_2_2_throttles_spend_no_attempt(sample: SampleApp) -> None:
    with sample.lab(stream_resources(mapping={"MaximumRetryAttempts": 0}), RAISE_ON_BAD) as lab:
        lab.throttle("Worker", 30)
        fill(lab, "a")
        lab.run()
        assert orders(lab) == ["a"]


def test_4_2_10_without_a_destination_records_are_skipped_in_silence(sample: SampleApp) -> None:
    with sample.lab(stream_resources(destination=None), RAISE_ON_BAD) as lab:
        fill(lab, "bad", "d")
        lab.run()
        assert [event.state for event in lab.ledger.events] == ["lost", "completed"]


def test_4_2_14_unbounded_retries_end_with_the_streams_retention(sample: SampleApp) -> None:
    mapping = {"MaximumRetryAttempts": -1}
    with sample.lab(stream_resources(mapping=mapping), RAISE_ON_BAD) as lab:
        fill(lab, "bad")
        lab.run(until=86_500)
        assert lab.ledger.events[0].state == "lost"
        assert "retention of 24 h" in lab.ledger.events[0].why


def test_batches_close_at_their_size_and_window(sample: SampleApp) -> None:
    mapping = {"BatchSize": 2, "MaximumBatchingWindowInSeconds": 5}
    with sample.lab(stream_resources(mapping=mapping), RAISE_ON_BAD) as lab:
        fill(lab, "a", "b", "c")
        lab.run()
        assert batches(lab) == [["a", "b"], ["c"]]
        assert lab.attempts[1].started >= 5


def test_the_record_has_the_exact_shape_of_the_service(sample: SampleApp) -> None:
    with sample.lab(stream_resources(), RAISE_ON_BAD) as lab:
        fill(lab, "a")
        lab.put_item("Source", {"id": "a", "n": 7})
        lab.delete_item("Source", {"id": "a"})
        lab.run()
        insert, modify, remove = (json.loads(lab.attempts[0].payload))["Records"]
        assert set(insert) == {
            "eventID", "eventName", "eventVersion", "eventSource", "awsRegion", "dynamodb", "eventSourceARN",
        }  # fmt: skip
        assert [r["eventName"] for r in (insert, modify, remove)] == ["INSERT", "MODIFY", "REMOVE"]
        assert insert["dynamodb"]["ApproximateCreationDateTime"] == 1767225600
        assert insert["dynamodb"]["NewImage"] == {"id": {"S": "a"}, "n": {"N": "0"}}
        assert modify["dynamodb"]["OldImage"] == insert["dynamodb"]["NewImage"]
        assert "NewImage" not in remove["dynamodb"]
        assert insert["eventSourceARN"].endswith(":table/app-Source/stream/2026-01-01T00:00:00.000")


FIELD = json.loads((Path(__file__).parent / "field_cases" / "c_stream_responses.json").read_text())["cases"]


@pytest.mark.parametrize("case", FIELD, ids=lambda case: f"{case['case']} {case['name']}")
def test_responses_of_the_field(case: dict[str, Any]) -> None:
    batch = case["input"]["batch"]
    failed = failed_identifiers(case["input"]["response"], batch)
    again = batch if failed is WHOLE_BATCH else batch[min((batch.index(f) for f in failed), default=len(batch)) :]
    assert again == case["expect"]["redelivered"]
