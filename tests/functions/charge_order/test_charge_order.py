"""Charge an order: what the queue's handler reports, how often the provider is called and what is logged."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from charge_order.handler import handler
from shared.errors import WrongSourceError
from shared.invocation import current_invocation
from shared.key import IdempotencyKey

ORDER = {"orderId": "o-1", "amount": "10.00"}
OPERATION = "charge-order/v1"

WANTED = "wanted finite Decimal of at most 38 digits, in JSON as text such as '10.00'"


def batch(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"Records": list(messages)}


def failed(response: Any) -> list[str]:
    return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]


def test_charges_once_with_the_key_and_completes(message: Any, context: Any, provider: Any, records: Any) -> None:
    assert handler(batch(message(ORDER)), context) == {"batchItemFailures": []}

    record_id = IdempotencyKey(OPERATION, ("o-1",)).record_id
    assert provider.keys == [record_id]
    assert provider.payloads == [{"amount": "10.00"}]
    assert provider.effects == {"o-1": 1}
    record = records.only()
    assert record["id"]["S"] == record_id
    assert record["status"]["S"] == "COMPLETED"
    assert json.loads(record["data"]["S"]) == {"chargeId": "effect-1", "orderId": "o-1", "amount": "10.00"}


def test_a_duplicate_is_acknowledged_without_a_call(message: Any, context: Any, provider: Any, output: Any) -> None:
    handler(batch(message(ORDER)), context)
    assert handler(batch(message(ORDER, "m2")), context) == {"batchItemFailures": []}
    assert provider.calls == {"o-1": 1}
    assert output().outcomes == ["executed", "replayed"]


def test_a_redelivery_after_an_unknown_outcome_calls_again_with_the_same_key(
    message: Any, context: Any, provider: Any, records: Any, output: Any
) -> None:
    def crash() -> None:
        raise SystemExit  # stands for a timeout right after the effect: nothing of the handler goes on

    provider.after = crash
    with pytest.raises(SystemExit):
        handler(batch(message(ORDER)), context)
    assert records.only()["status"]["S"] == "INPROGRESS"
    provider.after = lambda: None

    assert failed(handler(batch(message(ORDER)), context)) == ["m1"], "the lease still excludes others"
    records.end_lease()
    assert failed(handler(batch(message(ORDER)), context)) == []
    assert provider.calls == {"o-1": 2}
    assert provider.effects == {"o-1": 1}
    assert len(set(provider.keys)) == 1
    assert output().outcomes == ["in-progress", "taken-over", "executed"]


def test_a_failed_call_releases_so_that_the_retry_runs_at_once(
    message: Any, context: Any, provider: Any, records: Any, output: Any
) -> None:
    def unavailable() -> None:
        raise TimeoutError("o-1 at 10.00 was not answered")

    provider.before = unavailable
    assert failed(handler(batch(message(ORDER)), context)) == ["m1"]
    assert records.items() == []
    seen = output()
    assert seen.outcomes == ["released"]
    assert seen.totals(OPERATION) == {"Released": 1, "Failed": 1}
    assert "10.00" not in seen.text, "an error that is not ours loses its message"

    provider.before = lambda: None
    assert failed(handler(batch(message(ORDER)), context)) == []
    assert provider.effects == {"o-1": 1}


def test_in_progress_elsewhere_fails_the_record_without_an_error_line(
    message: Any, context: Any, provider: Any, output: Any
) -> None:
    inner: list[Any] = []
    provider.before = lambda: inner.append(handler(batch(message(ORDER)), context)) if not inner else None
    assert failed(handler(batch(message(ORDER)), context)) == []
    assert failed(inner[0]) == ["m1"]
    seen = output()
    assert [line["level"] for line in seen.logs] == ["INFO", "INFO"]
    assert seen.outcomes == ["in-progress", "executed"]
    assert 14 <= seen.logs[0]["seconds_left"] <= 15


def test_the_same_order_with_another_amount_is_refused(message: Any, context: Any, provider: Any, output: Any) -> None:
    handler(batch(message(ORDER)), context)
    assert failed(handler(batch(message({**ORDER, "amount": "99.00"}, "m2")), context)) == ["m2"]
    assert provider.calls == {"o-1": 1}
    assert output().logs[-1]["error"] == "FingerprintMismatchError"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"orderId": "o-1"}, "Order.amount is missing; wanted it in every Order"),
        ({"amount": "1"}, "Order.orderId is missing; wanted it in every Order"),
        (
            {"orderId": "o-1", "amount": 10},
            f"Order.amount has a value of type int; {WANTED}",
        ),
        (
            {"orderId": "o-1", "amount": "1_0"},
            f"Order.amount has a value of type str; {WANTED}",
        ),
        (
            {"orderId": "o-1", "amount": "0"},
            "Order.amount is not a price; wanted more than 0 and at most two ",
        ),
        (
            {"orderId": "o-1", "amount": "0.001"},
            "Order.amount is not a price; wanted more than 0 and at most ",
        ),
        ({"orderId": 7, "amount": "1"}, "Order.orderId has a value of type int; wanted str"),
        ({"orderId": " ", "amount": "1"}, "key part orderId is blank; wanted text"),
        ("[]", "body is a JSON list; wanted a JSON object"),
        ('{"orderId":"a","orderId":"b"}', "body is no JSON (duplicate names); wanted a JSON object"),
    ],
)
def test_a_refused_body_names_the_field_and_fails_alone(
    message: Any, context: Any, provider: Any, output: Any, body: Any, reason: str
) -> None:
    good = {"orderId": "o-2", "amount": "3.50"}
    response = handler(batch(message(body, "bad"), message(good, "good")), context)
    assert failed(response) == ["bad"]
    assert provider.effects == {"o-2": 1}
    (line,) = [line for line in output().logs if line["level"] == "ERROR"]
    assert line["reason"].startswith(reason)
    assert line["delivery_id"] == "bad"


def test_all_messages_failing_is_reported_not_raised(message: Any, context: Any, provider: Any) -> None:
    response = handler(batch(message("{oops", "m1"), message("{oops", "m2")), context)
    assert response == {"batchItemFailures": [{"itemIdentifier": "m1"}, {"itemIdentifier": "m2"}]}


def test_nothing_is_remembered_between_invocations(message: Any, context: Any, provider: Any) -> None:
    assert failed(handler(batch(message("{oops")), context)) == ["m1"]
    assert failed(handler(batch(message(ORDER)), context)) == []


@pytest.mark.parametrize(
    ("event", "found"),
    [
        ({"detail": {}}, "no list of Records"),
        ({"records": [1]}, "no list of Records"),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent"}, "no list of Records"),
        ({"Records": []}, "no list of Records"),
        ({"Records": [None]}, "record comes from no known source; wanted 'aws:sqs'"),
        ({"Records": [{"eventSource": "aws:kinesis"}]}, "record comes from 'aws:kinesis'; wanted 'aws:sqs'"),
        ({"Records": [{"eventSource": "4111 of a card"}]}, "record comes from no known source; wanted 'aws:sqs'"),
        ([], "no list of Records"),
    ],
)
def test_another_shape_is_refused_by_name(context: Any, provider: Any, event: Any, found: str) -> None:
    with pytest.raises(WrongSourceError, match=found):
        handler(event, context)
    assert not provider.calls


def test_a_message_without_id_fails_the_batch_before_any_effect(message: Any, context: Any, provider: Any) -> None:
    nameless = message({"orderId": "o-2", "amount": "1"})
    del nameless["messageId"]
    with pytest.raises(WrongSourceError, match="record has no messageId"):
        handler(batch(message(ORDER), nameless), context)
    assert not provider.calls


def test_a_fifo_queue_is_refused_because_its_order_would_break(message: Any, context: Any, provider: Any) -> None:
    fifo = {**message(ORDER), "eventSourceARN": "arn:aws:sqs:us-east-1:111122223333:orders.fifo"}
    with pytest.raises(WrongSourceError, match="FIFO queue; wanted a standard queue"):
        handler(batch(fifo), context)


def test_log_lines_and_metrics_have_exactly_these_fields(
    message: Any, context: Any, provider: Any, output: Callable[[], Any]
) -> None:
    handler(batch(message({**ORDER, "email": "ada@example.com"})), context)
    seen = output()
    (line,) = seen.logs
    powertools = {"level", "location", "message", "timestamp", "service"}
    assert set(line) - powertools == {
        "operation",
        "delivery_id",
        "request_id",
        "outcome",
        "record_id",
        "record_format",
        "taken_over",
    }
    assert line["operation"] == OPERATION
    assert (line["delivery_id"], line["request_id"], line["record_format"]) == ("m1", "request-1", 1)
    assert "ada@example.com" not in seen.text
    assert '"o-1"' not in seen.text
    (emf,) = seen.metrics
    assert emf["_aws"]["CloudWatchMetrics"] == [
        {
            "Namespace": "RetrySafe",
            "Dimensions": [["operation"]],
            "Metrics": [{"Name": "Executed", "Unit": "Count"}],
        }
    ]
    assert set(emf) == {"_aws", "operation", "Executed"}


def test_metrics_are_written_when_the_invocation_dies_by_an_exception(
    message: Any, context: Any, provider: Any, output: Any
) -> None:
    def stop() -> None:
        if current_invocation().delivery_id == "m2":
            raise KeyboardInterrupt

    provider.before = stop
    second = message({"orderId": "o-2", "amount": "1"}, "m2")
    with pytest.raises(KeyboardInterrupt):
        handler(batch(message(ORDER), second), context)
    assert output().totals(OPERATION) == {"Executed": 1}


def test_a_keyless_provider_never_gets_the_key(message: Any, context: Any, provider: Any, environment: Any) -> None:
    environment.setenv("PROVIDER_KEY_LIFETIME_SECONDS", "0")
    handler(batch(message(ORDER)), context)
    assert provider.keys == [None]
