"""Rules of asynchronous invocation and of EventBridge in front of it, each named by its number in the fact sheet."""

import json
from typing import Any

import pytest

from tests.retrylab.sample_app import SampleApp, event_resources, orders

CHARGE = """
def handler(event, context):
    charge(event["detail"]["order"])
"""
FAIL = """
def handler(event, context):
    raise ValueError("card declined")
"""


def put(lab: Any, order: str = "o-1") -> dict[str, Any]:
    envelope: dict[str, Any] = lab.bus("Bus").put("shop", "Order", {"order": order}, order)
    return envelope


def record_of(lab: Any, queue: str = "Failed") -> dict[str, Any]:
    (message,) = lab.messages(queue)
    parsed: dict[str, Any] = json.loads(message.body)
    return parsed


def test_2_1_1_three_attempts_sixty_and_one_hundred_twenty_seconds_apart(sample: SampleApp) -> None:
    with sample.lab(event_resources(), FAIL) as lab:
        put(lab)
        lab.run()
        starts = [attempt.started for attempt in lab.attempts]
        ends = [attempt.ended_at or 0.0 for attempt in lab.attempts]
        assert len(starts) == 3
        assert starts[1] - ends[0] == pytest.approx(60)
        assert starts[2] - ends[1] == pytest.approx(120)


def test_2_2_the_destination_record_has_the_exact_shape(sample: SampleApp) -> None:
    with sample.lab(event_resources(), FAIL) as lab:
        envelope = put(lab)
        lab.run()
        record = record_of(lab)
        request_id = lab.attempts[0].request_id
        stack = record["responsePayload"].pop("stackTrace")
        assert "/var/task/app.py" in stack[-1]
        assert record == {
            "version": "1.0",
            "timestamp": "2026-01-01T00:03:00.250Z",
            "requestContext": {
                "requestId": request_id,
                "functionArn": "arn:aws:lambda:us-east-1:111122223333:function:app-Worker:$LATEST",
                "condition": "RetriesExhausted",
                "approximateInvokeCount": 3,
            },
            "requestPayload": envelope,
            "responseContext": {
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": "Unhandled",
            },
            "responsePayload": {
                "errorMessage": "card declined",
                "errorType": "ValueError",
                "requestId": request_id,
            },
        }


def test_2_1_4_all_attempts_have_the_same_request_id(sample: SampleApp) -> None:
    with sample.lab(event_resources(), FAIL) as lab:
        put(lab)
        lab.run()
        assert len({attempt.request_id for attempt in lab.attempts}) == 1


@pytest.mark.parametrize(
    ("age", "attempts", "condition"),
    [(60, 1, "EventAgeExceeded"), (90, 2, "EventAgeExceeded"), (200, 3, "RetriesExhausted")],
)
def test_2_1_3_the_age_test_looks_ahead(sample: SampleApp, age: int, attempts: int, condition: str) -> None:
    with sample.lab(event_resources(config={"MaximumEventAgeInSeconds": age}), FAIL) as lab:
        put(lab)
        lab.run()
        assert len(lab.attempts) == attempts
        record = record_of(lab)
        assert record["requestContext"]["condition"] == condition
        assert record["responseContext"]["functionError"] == "Unhandled"


def test_2_1_2_throttles_spend_no_retry_and_end_by_age(sample: SampleApp) -> None:
    with sample.lab(event_resources(config={"MaximumEventAgeInSeconds": 600}), CHARGE) as lab:
        lab.throttle("Worker", 100)
        put(lab)
        lab.run()
        assert orders(lab) == ["o-1"]
        assert lab.attempts[0].started == 127.0, "1 + 2 + 4 + ... + 64 s"
    with sample.lab(event_resources(config={"MaximumEventAgeInSeconds": 60}), CHARGE) as lab:
        lab.throttle("Worker", 1000)
        put(lab)
        lab.run()
        record = record_of(lab)
        assert lab.attempts == []
        assert record["requestContext"]["condition"] == "EventAgeExceeded"
        assert record["requestContext"]["approximateInvokeCount"] == 0
        assert "responseContext" not in record


def test_without_a_destination_the_event_is_lost(sample: SampleApp) -> None:
    resources = event_resources(config={"MaximumRetryAttempts": 0}, destination=False)
    with sample.lab(resources, FAIL) as lab:
        put(lab)
        lab.run()
        assert lab.ledger.events[0].state == "lost"
        assert "no on-failure destination (App/Config)" in lab.ledger.events[0].why


def test_2_1_7_a_config_for_one_qualifier_does_not_cover_another(sample: SampleApp) -> None:
    resources = event_resources(config={"Qualifier": "live", "MaximumRetryAttempts": 0})
    with sample.lab(resources, FAIL) as lab:
        put(lab)
        lab.run()
        assert len(lab.attempts) == 3, "the defaults apply"
        assert lab.ledger.events[0].state == "lost"


def test_2_5_1_handler_errors_never_reach_the_rules_dead_letters(sample: SampleApp) -> None:
    resources = event_resources(target={"RetryPolicy": {"MaximumRetryAttempts": 0}})
    with sample.lab(resources, FAIL) as lab:
        put(lab)
        lab.run()
        assert len(lab.attempts) == 3
        assert lab.messages("Undelivered") == []
        assert len(lab.messages("Failed")) == 1


def test_2_5_2_an_undeliverable_event_goes_to_the_rules_dead_letters_as_it_is(sample: SampleApp) -> None:
    resources = event_resources(target={"RetryPolicy": {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 3600}})
    with sample.lab(resources, CHARGE) as lab:
        bus = lab.bus("Bus")
        lab.make_unreachable("Bus", 10_000)
        envelope = bus.put("shop", "Order", {"order": "o-1"}, "o-1")
        lab.run()
        (message,) = lab.messages("Undelivered")
        assert json.loads(message.body) == envelope
        assert message.attributes["EXHAUSTED_RETRY_CONDITION"] == "MaximumRetryAttempts"
        assert message.attributes["RETRY_ATTEMPTS"] == "3"
        assert lab.attempts == []
        assert lab.ledger.events[0].ended == "App/Undelivered"


def test_2_5_1_the_rules_age_limit_ends_its_retries(sample: SampleApp) -> None:
    resources = event_resources(target={"RetryPolicy": {"MaximumEventAgeInSeconds": 60}})
    with sample.lab(resources, CHARGE) as lab:
        bus = lab.bus("Bus")
        lab.make_unreachable("Bus", 10_000)
        bus.put("shop", "Order", {"order": "o-1"}, "o-1")
        lab.run()
        assert lab.messages("Undelivered")[0].attributes["EXHAUSTED_RETRY_CONDITION"] == "MaximumEventAgeInSeconds"


def test_an_event_that_no_rule_matches_is_filtered(sample: SampleApp) -> None:
    with sample.lab(event_resources(), CHARGE) as lab:
        lab.bus("Bus").put("elsewhere", "Order", {"order": "o-1"}, "o-1")
        lab.run()
        assert lab.ledger.events[0].state == "filtered"
        assert lab.attempts == []


def test_2_5_4_a_rule_may_fire_twice_for_one_event(sample: SampleApp) -> None:
    with sample.lab(event_resources(), CHARGE) as lab:
        envelope = put(lab)
        lab.bus("Bus").put_envelope(envelope, "o-1 again")
        lab.run()
        assert orders(lab) == ["o-1", "o-1"]
        assert len({attempt.request_id for attempt in lab.attempts}) == 2


def test_b08_a_returned_failure_is_a_success(sample: SampleApp) -> None:
    with sample.lab(event_resources(), 'def handler(event, context): return {"statusCode": 500}') as lab:
        put(lab)
        lab.run()
        assert len(lab.attempts) == 1
        assert lab.ledger.events[0].state == "completed"
        assert lab.messages("Failed") == []
