"""The contract with stock Powertools, both ways, and the hooks of it that the shared code overrides."""

import inspect
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyPersistenceLayerError,
    IdempotencyValidationError,
)
from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer

from shared.errors import FingerprintMismatchError, InProgressError
from shared.invocation import invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Effect, Operation


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: Decimal


@dataclass(frozen=True)
class Receipt:
    charge_id: str
    amount: Decimal


ORDER = {"orderId": "o-1", "amount": "10.00"}
RECEIPT = Receipt("c-1", Decimal("10.00"))
NAME = "charge/v1"


def ours(result: Any = RECEIPT, declared: Any = Receipt) -> Effect[Order, Any]:
    def run(order: Order, key: IdempotencyKey) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result() if callable(result) else result

    run.__annotations__["return"] = declared
    return Operation(NAME, key=business_key("orderId"), result=declared).effect(run)


def deliver(effect: Effect[Order, Any], context: Any, amount: str = "10.00") -> Any:
    with invocation(context):
        return effect(Order("o-1", Decimal(amount)))


def stock(result: Any, context: Any, *, validated: bool = True, registered: bool = True) -> Callable[..., Any]:
    """The stock decorator with the settings that make the same record."""
    config = IdempotencyConfig(
        event_key_jmespath="[orderId]",
        payload_validation_jmespath="{amount: amount, orderId: orderId}" if validated else "",
        raise_on_no_idempotency_key=True,
        hash_function="sha256",
    )
    if registered:
        config.register_lambda_context(context)
    store = DynamoDBPersistenceLayer(table_name="records")

    @idempotent_function(data_keyword_argument="order", persistence_store=store, config=config, key_prefix=NAME)
    def run(*, order: dict[str, Any]) -> Any:
        if isinstance(result, BaseException):
            raise result
        return result

    return run  # type: ignore[no-any-return]


STORED = {"chargeId": "c-9", "amount": "3.50"}


class TestOursMeetsStock:
    @pytest.mark.parametrize("validated", [True, False])
    def test_a_completed_record_is_replayed(self, context: Any, records: Any, validated: bool) -> None:
        stock(STORED, context, validated=validated)(order=ORDER)
        assert deliver(ours(AssertionError()), context) == Receipt("c-9", Decimal("3.50"))
        assert len(records.items()) == 1

    def test_the_other_payload_is_refused(self, context: Any) -> None:
        stock(STORED, context)(order=ORDER)
        with pytest.raises(FingerprintMismatchError):
            deliver(ours(), context, amount="99")

    @pytest.mark.parametrize(
        ("declared", "value"), [(int, 0), (bool, False), (str, ""), (list[int], []), (dict[str, int], {})]
    )
    def test_a_falsy_result_is_replayed_as_itself(self, context: Any, declared: Any, value: Any) -> None:
        stock(value, context)(order=ORDER)
        replayed = deliver(ours(AssertionError(), declared), context)
        assert (replayed, type(replayed)) == (value, type(value))

    def test_no_result_is_replayed_as_none(self, context: Any) -> None:
        stock(None, context)(order=ORDER)
        assert deliver(ours(AssertionError(), type(None)), context) is None

    @pytest.mark.parametrize("validated", [True, False])
    def test_a_live_claim_excludes_and_an_ended_one_is_taken_over(
        self, context: Any, records: Any, output: Any, validated: bool
    ) -> None:
        with pytest.raises(SystemExit):
            stock(SystemExit(), context, validated=validated)(order=ORDER)
        with pytest.raises(InProgressError) as caught:
            deliver(ours(), context)
        assert 9 < caught.value.seconds_left <= 10
        records.end_lease()
        assert deliver(ours(), context) == RECEIPT
        assert output().outcomes == ["in-progress", "taken-over", "executed"]

    def test_a_claim_without_a_context_excludes_until_it_expires(self, context: Any, records: Any) -> None:
        with warnings.catch_warnings(), pytest.raises(SystemExit):
            warnings.simplefilter("ignore")
            stock(SystemExit(), context, registered=False)(order=ORDER)
        with pytest.raises(InProgressError) as caught:
            deliver(ours(), context)
        assert 3595 < caught.value.seconds_left <= 3601
        records.end_lifetime()
        assert deliver(ours(), context) == RECEIPT


class TestStockMeetsOurs:
    def test_a_plain_result_is_replayed_as_json(self, context: Any, records: Any) -> None:
        deliver(ours(), context)
        assert stock(AssertionError(), context)(order=ORDER) == {"chargeId": "c-1", "amount": "10.00"}
        assert len(records.items()) == 1

    def test_no_result_is_replayed_as_none(self, context: Any) -> None:
        deliver(ours(None, type(None)), context)
        assert stock(AssertionError(), context)(order=ORDER) is None

    @pytest.mark.parametrize(("declared", "value"), [(int, 0), (bool, False), (str, ""), (list[int], [])])
    def test_a_falsy_result_is_raised_on_instead_of_replayed_wrong(
        self, context: Any, declared: Any, value: Any
    ) -> None:
        deliver(ours(value, declared), context)
        with pytest.raises(IdempotencyPersistenceLayerError, match="COMPLETED_FALSY"):
            stock(AssertionError(), context)(order=ORDER)

    def test_a_live_claim_excludes(self, context: Any) -> None:
        def meanwhile() -> Receipt:
            with pytest.raises(IdempotencyAlreadyInProgressError):
                stock(AssertionError(), context)(order=ORDER)
            return RECEIPT

        deliver(ours(meanwhile), context)

    def test_the_other_payload_is_refused(self, context: Any) -> None:
        deliver(ours(), context)
        with pytest.raises(IdempotencyValidationError):
            stock(AssertionError(), context)(order={**ORDER, "amount": "99"})


def test_the_record_is_a_stock_record_with_an_owner_and_a_format(context: Any, records: Any) -> None:
    stock(STORED, context)(order=ORDER)
    theirs = records.only()
    records.client.delete_item(TableName="records", Key={"id": theirs["id"]})
    deliver(ours(), context)
    mine = records.only()
    assert mine.keys() - theirs.keys() == {"owner", "format", "started"}
    assert theirs.keys() <= mine.keys()
    assert (mine["id"], mine["validation"]) == (theirs["id"], theirs["validation"])
    assert mine["format"] == {"N": "1"}
    assert json.loads(mine["data"]["S"]) == {"chargeId": "c-1", "amount": "10.00"}


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (DynamoDBPersistenceLayer, "_put_record", ["self", "data_record"]),
        (DynamoDBPersistenceLayer, "_update_record", ["self", "data_record"]),
        (DynamoDBPersistenceLayer, "_delete_record", ["self", "data_record"]),
        (DynamoDBPersistenceLayer, "_get_key", ["self", "idempotency_key"]),
        (BasePersistenceLayer, "_get_expiry_timestamp", ["self"]),
        (BasePersistenceLayer, "_get_hashed_payload", ["self", "data"]),
        (BasePersistenceLayer, "configure", ["self", "config", "function_name", "key_prefix"]),
        (BasePersistenceLayer, "save_inprogress", ["self", "data", "remaining_time_in_millis"]),
        (BasePersistenceLayer, "save_success", ["self", "data", "result"]),
        (BasePersistenceLayer, "delete_record", ["self", "data", "exception"]),
    ],
)
def test_the_hooks_of_powertools_are_what_the_shared_code_expects(owner: Any, name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_powertools_calls_the_hooks_in_this_order_and_by_keyword() -> None:
    seen: list[tuple[str, tuple[Any, ...], list[str]]] = []

    class Spy(BasePersistenceLayer):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]

        def _get_record(self, *args: Any, **named: Any) -> Any:
            raise AssertionError("nothing here reads a record by itself")

        def _put_record(self, *args: Any, **named: Any) -> None:
            seen.append(("_put_record", args, [*named]))
            records.append(named["data_record"])

        def _update_record(self, *args: Any, **named: Any) -> None:
            seen.append(("_update_record", args, [*named]))
            records.append(named["data_record"])

        def _delete_record(self, *args: Any, **named: Any) -> None:
            seen.append(("_delete_record", args, [*named]))
            records.append(named["data_record"])

    records: list[Any] = []
    spy, data = Spy(), {"key": ["o-1"], "fingerprint": {"amount": "1"}}
    config = IdempotencyConfig(
        event_key_jmespath="key", payload_validation_jmespath="fingerprint", hash_function="sha256"
    )
    spy.configure(config, key_prefix=NAME)
    spy.save_inprogress(data=data, remaining_time_in_millis=0)
    spy.save_success(data=data, result={"b": 1, "a": 2})
    spy.delete_record(data=data, exception=ValueError())
    assert seen == [(name, (), ["data_record"]) for name in ("_put_record", "_update_record", "_delete_record")]
    assert {record.idempotency_key for record in records} == {IdempotencyKey(NAME, ("o-1",)).record_id}
    assert records[0].payload_hash == records[1].payload_hash == spy._get_hashed_payload(data)
    assert records[1].response_data == '{"a": 2, "b": 1}'
