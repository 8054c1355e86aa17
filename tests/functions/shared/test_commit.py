"""Commit: the business write and the record in one transaction, in one request or after a claim."""

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from shared.aws import dynamodb
from shared.commit import Commit, CommitRefusedError, CommittedEffect, NotCommittedError, commit
from shared.errors import DeclarationError, FingerprintMismatchError, InProgressError
from shared.invocation import invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: int = 1


@dataclass(frozen=True)
class Placed:
    order_id: str
    note: str = ""


def put_order(order: Order) -> dict[str, Any]:
    return {
        "Put": {
            "TableName": "search-view",
            "Item": {"id": {"S": order.order_id}, "amount": {"N": str(order.amount)}},
            "ConditionExpression": "attribute_not_exists(id)",
        }
    }


def placing(claim: bool, run: Callable[[], Any] = lambda: None, **options: Any) -> CommittedEffect[Order, Placed]:
    @commit(Operation("place/v1", key=business_key("orderId"), result=Placed, **options), claim=claim)
    def place(order: Order, key: IdempotencyKey) -> Commit[Placed]:
        run()
        return Commit(Placed(order.order_id), [put_order(order)])

    return place


def deliver(effect: CommittedEffect[Order, Placed], context: Any, amount: int = 1) -> Placed:
    with invocation(context):
        return effect(Order("o-1", amount))


@pytest.fixture
def sent(context: Any) -> list[str]:
    """The operations that were asked of DynamoDB, in order."""
    asked: list[str] = []
    dynamodb().meta.events.register("provide-client-params.dynamodb", lambda model, **_: asked.append(model.name))
    return asked


@pytest.fixture
def cancel(context: Any) -> Callable[..., None]:
    """Let the next transactions be cancelled with these codes, nothing applied."""

    def build(times: int, *codes: str) -> None:
        left = [times]

        def answer(**_: Any) -> Any:
            if left[0] == 0:
                return None
            left[0] -= 1
            error = {"Code": "TransactionCanceledException", "Message": "cancelled"}
            reasons = [{"Code": code} for code in codes]
            return types.SimpleNamespace(status_code=400), {"Error": error, "CancellationReasons": reasons}

        dynamodb().meta.events.register_last("before-call.dynamodb.TransactWriteItems", answer)

    return build


@pytest.fixture(autouse=True)
def no_pauses(environment: Any) -> None:
    environment.setattr("time.sleep", lambda _seconds: None)


both = pytest.mark.parametrize("claim", [False, True])


@both
def test_one_write_and_the_duplicate_replays(
    context: Any, records: Any, view: Any, output: Any, sent: list[str], claim: bool
) -> None:
    effect = placing(claim)
    assert [deliver(effect, context) for _ in range(2)] == [Placed("o-1")] * 2
    first = ["PutItem", "TransactWriteItems"] if claim else ["TransactWriteItems"]
    assert sent == first + (["PutItem"] if claim else ["TransactWriteItems"])
    assert view.only()["amount"] == {"N": "1"}
    assert records.only()["status"] == {"S": "COMPLETED"}
    assert records.only()["expiration"]["N"] > records.only()["started"]["N"]
    assert output().outcomes == ["executed", "replayed"]


@both
def test_a_lost_response_is_recognised_as_ones_own(
    context: Any, view: Any, output: Any, lose_response: Any, claim: bool
) -> None:
    asked = lose_response("TransactWriteItems")
    assert deliver(placing(claim), context) == Placed("o-1")
    assert len(asked) == 2
    assert output().outcomes == ["executed"]


@both
def test_another_payload_is_refused(context: Any, view: Any, claim: bool) -> None:
    deliver(placing(claim), context)
    with pytest.raises(FingerprintMismatchError):
        deliver(placing(claim), context, amount=2)
    assert view.only()["amount"] == {"N": "1"}


@both
def test_a_crash_before_the_transaction_leaves_no_write(context: Any, records: Any, view: Any, claim: bool) -> None:
    def stop() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        deliver(placing(claim, stop), context)
    assert view.items() == []
    if claim:
        with pytest.raises(InProgressError):
            deliver(placing(claim), context)
        records.end_lease()
    assert deliver(placing(claim), context) == Placed("o-1")
    assert len(view.items()) == 1


def test_the_form_without_a_claim_respects_and_takes_over_claims(
    context: Any, records: Any, view: Any, output: Any
) -> None:
    def stop() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        deliver(placing(True, stop), context)
    with pytest.raises(InProgressError):
        deliver(placing(False), context)
    assert view.items() == []
    records.end_lease()
    assert deliver(placing(False), context) == Placed("o-1")
    assert output().outcomes == ["in-progress", "taken-over", "executed"]
    assert len(view.items()) == 1


@both
def test_conflicts_and_throttles_are_retried(
    context: Any, view: Any, sent: list[str], cancel: Any, claim: bool
) -> None:
    cancel(2, "None", "TransactionConflict")
    assert deliver(placing(claim), context) == Placed("o-1")
    assert sent.count("TransactWriteItems") == 3


@both
@pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
def test_lasting_conflicts_are_surfaced_and_nothing_is_held(
    context: Any, records: Any, view: Any, sent: list[str], cancel: Any, claim: bool, code: str
) -> None:
    cancel(99, "None", code)
    with pytest.raises(NotCommittedError, match=f"nothing was committed .write 1 {code}.; wanted no conflict"):
        deliver(placing(claim), context)
    assert sent.count("TransactWriteItems") == 4
    assert (records.items(), view.items()) == ([], [])


@both
def test_a_refused_business_write_is_told_apart_and_releases(
    context: Any, records: Any, view: Any, sent: list[str], claim: bool
) -> None:
    view.client.put_item(TableName="search-view", Item={"id": {"S": "o-1"}})
    with pytest.raises(CommitRefusedError, match=r"write 1 ConditionalCheckFailed.; wanted a condition that holds"):
        deliver(placing(claim), context)
    assert sent.count("TransactWriteItems") == 1
    assert records.items() == []


def test_a_refusal_can_be_remembered(context: Any, records: Any, view: Any) -> None:
    view.client.put_item(TableName="search-view", Item={"id": {"S": "o-1"}})
    for _ in range(2):
        with pytest.raises(CommitRefusedError):
            deliver(placing(True, permanent=(CommitRefusedError,)), context)
        view.client.delete_item(TableName="search-view", Key={"id": {"S": "o-1"}})
    assert records.only()["status"] == {"S": "FAILED"}
    assert view.items() == []


@both
def test_a_malformed_write_is_not_retried(
    context: Any, records: Any, sent: list[str], cancel: Any, claim: bool
) -> None:
    cancel(99, "None", "ValidationError")
    with pytest.raises(NotCommittedError, match=r"write 1 ValidationError.; wanted writes that DynamoDB takes"):
        deliver(placing(claim), context)
    assert sent.count("TransactWriteItems") == 1


def test_a_late_attempt_neither_writes_nor_completes(context: Any, records: Any, view: Any) -> None:
    second: list[Placed] = []

    def meanwhile() -> None:
        if not second:
            second.append(Placed("pending"))
            records.end_lease()
            second.append(deliver(placing(True), context))

    with pytest.raises(Exception, match="belongs to another attempt"):
        deliver(placing(True, meanwhile), context)
    assert len(view.items()) == 1


def test_a_commit_that_parks_is_refused() -> None:
    with pytest.raises(DeclarationError, match="wanted 'retry', a commit is known"):
        placing(False, on_unknown_outcome="park")
