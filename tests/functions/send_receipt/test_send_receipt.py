"""Send a receipt: what the async handler raises, how often the provider is called and what is logged."""

from typing import Any

import pytest

from send_receipt.handler import handler
from shared.errors import FingerprintMismatchError, InProgressError, ShapeError, WrongSourceError
from shared.key import IdempotencyKey
from shared.provider import ProviderUnavailableError

OPERATION = "send-receipt/v1"


def test_mails_once_with_the_key(order_event: Any, context: Any, provider: Any, records: Any) -> None:
    handler(order_event(orderId="o-1", amount="10.00", email="ada@example.com"), context)
    assert provider.keys == [IdempotencyKey(OPERATION, ("o-1",)).record_id]
    assert provider.payloads == [{"amount": "10.00", "email": "ada@example.com"}]
    assert records.only()["status"]["S"] == "COMPLETED"


def test_another_envelope_around_the_same_order_is_a_duplicate(
    order_event: Any, context: Any, provider: Any, output: Any
) -> None:
    handler(order_event("e1"), context)
    handler({**order_event("e2"), "time": "2026-01-05T10:00:03Z"}, context)
    assert provider.calls == {"o-1": 1}
    seen = output()
    assert [(line["delivery_id"], line["outcome"]) for line in seen.logs] == [
        ("e1", "executed"),
        ("e2", "replayed"),
    ]
    assert seen.totals(OPERATION) == {"Executed": 1, "Replayed": 1}


def test_a_corrected_address_is_the_same_receipt(order_event: Any, context: Any, provider: Any) -> None:
    handler(order_event(orderId="o-1", amount="10.00", email="ada@example.com"), context)
    handler(order_event(orderId="o-1", amount="10.00", email="ada@example.org"), context)
    assert provider.calls == {"o-1": 1}


def test_another_amount_is_refused(order_event: Any, context: Any, provider: Any) -> None:
    handler(order_event(), context)
    with pytest.raises(FingerprintMismatchError, match="claimed with other values of orderId, amount"):
        handler(order_event(orderId="o-1", amount="11.00"), context)
    assert provider.calls == {"o-1": 1}


def test_in_progress_is_raised_so_that_lambda_delivers_again(
    order_event: Any, context: Any, provider: Any, output: Any
) -> None:
    raised: list[InProgressError] = []

    def second_delivery() -> None:
        with pytest.raises(InProgressError, match=r"in progress elsewhere for up to 1\d\.\d s") as caught:
            handler(order_event(), context)
        raised.append(caught.value)

    provider.before = second_delivery
    handler(order_event(), context)
    assert provider.calls == {"o-1": 1}
    assert 14 < raised[0].seconds_left <= 15, "remaining time of 10 s and the margin of 5 s"
    assert all(line["level"] == "INFO" for line in output().logs)


def test_a_failure_propagates_after_the_release_and_keeps_the_address_out_of_the_log(
    order_event: Any, context: Any, provider: Any, records: Any, output: Any
) -> None:
    def unavailable() -> None:
        raise ProviderUnavailableError("no answer within 2 s")

    provider.before = unavailable
    with pytest.raises(ProviderUnavailableError):
        handler(order_event(orderId="o-1", amount="10.00", email="ada@example.com"), context)
    assert records.items() == []
    seen = output()
    assert seen.outcomes == ["released"]
    assert seen.logs[-1]["reason"] == "no answer within 2 s"
    assert seen.totals(OPERATION) == {"Released": 1, "Failed": 1}
    assert "ada@" not in seen.text


def test_a_keyless_provider_repeats_after_a_cut_between_mail_and_completion(
    order_event: Any, context: Any, provider: Any, records: Any, environment: Any
) -> None:
    environment.setenv("PROVIDER_KEY_LIFETIME_SECONDS", "0")

    def crash() -> None:
        raise SystemExit

    provider.after = crash
    with pytest.raises(SystemExit):
        handler(order_event(), context)
    provider.after = lambda: None
    records.end_lease()
    handler(order_event(), context)
    assert provider.effects == {"o-1": 2}, "at least once, no more is promised without a key"


@pytest.mark.parametrize(
    ("event", "found"),
    [
        ({"Records": [{"eventSource": "aws:sqs"}]}, "event is no EventBridge envelope"),
        ({"orderId": "o-1", "amount": "1"}, "event is no EventBridge envelope"),
        ([], "event is no EventBridge envelope"),
        ({"detail": "text"}, "detail of type str; wanted str and object"),
        ({"id": 7}, "id of type int"),
    ],
)
def test_another_shape_is_refused_by_name(
    order_event: Any, context: Any, provider: Any, event: Any, found: str
) -> None:
    whole = {**order_event(), **event} if isinstance(event, dict) and {*event} <= {"detail", "id"} else event
    with pytest.raises(WrongSourceError, match=found):
        handler(whole, context)
    assert not provider.calls


def test_a_detail_of_the_wrong_shape_is_raised_naming_the_field(order_event: Any, context: Any, provider: Any) -> None:
    with pytest.raises(ShapeError, match=r"^ChargedOrder\.orderId is missing; wanted it in every ChargedOrder$"):
        handler(order_event(amount="10.00"), context)
    with pytest.raises(ShapeError, match=r"^ChargedOrder\.email has a value of type int; wanted str$"):
        handler(order_event(orderId="o-1", amount="10.00", email=7), context)
