"""The fence, lost responses and separation: attempts at the same time never spoil each other's records."""

import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from shared.errors import (
    FenceLostError,
    NoInvocationError,
)
from shared.invocation import invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Effect, Operation


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: Decimal = Decimal("10.00")


@dataclass(frozen=True)
class Receipt:
    charge_id: str
    amount: Decimal
    at: datetime
    lines: list[str]
    note: str | None = None


RECEIPT = Receipt("c-1", Decimal("10.00"), datetime(2026, 1, 5, 10, tzinfo=UTC), ["a"])
KEY = IdempotencyKey("charge/v1", ("o-1",))


def charging(run: Callable[[], Any] = lambda: RECEIPT, name: str = "charge/v1") -> Effect[Order, Receipt]:
    """An operation whose effect is `run`."""

    def charge(order: Order, key: IdempotencyKey) -> Receipt:
        result: Receipt = run()
        return result

    return Operation(name, key=business_key("orderId"), result=Receipt).effect(charge)


def deliver(effect: Effect[Any, Any], value: Any, context: Any) -> Any:
    with invocation(context):
        return effect(value)


class TestFence:
    """The first attempt sleeps past its lease; a second one takes over meanwhile."""

    def late(self, context: Any, records: Any, then: Callable[[], Any]) -> Any:
        def run() -> Any:
            records.end_lease()
            meanwhile()
            return then()

        def meanwhile() -> None:
            deliver(charging(lambda: second), Order("o-1"), context)

        second = Receipt("c-2", Decimal("10.00"), RECEIPT.at, [])
        return deliver(charging(run), Order("o-1"), context)

    def test_a_late_completion_cannot_overwrite(self, context: Any, records: Any, output: Any) -> None:
        with pytest.raises(FenceLostError, match="belongs to another attempt; wanted this attempt's owner token"):
            self.late(context, records, lambda: RECEIPT)
        assert '"c-2"' in records.only()["data"]["S"]
        seen = output()
        assert seen.outcomes == ["taken-over", "executed", "lost"]
        assert seen.logs[-1]["finished"] is True
        assert deliver(charging(), Order("o-1"), context).charge_id == "c-2"

    def test_a_late_failure_cannot_delete_a_completed_record(self, context: Any, records: Any, output: Any) -> None:
        def fail() -> Any:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            self.late(context, records, fail)
        assert '"c-2"' in records.only()["data"]["S"]
        assert output().outcomes == ["taken-over", "executed", "lost"]

    def test_a_late_failure_cannot_delete_a_running_record(self, context: Any, records: Any) -> None:
        def run() -> Any:
            records.change(owner={"S": "the new owner"})
            raise TimeoutError

        with pytest.raises(TimeoutError):
            deliver(charging(run), Order("o-1"), context)
        assert records.only()["owner"] == {"S": "the new owner"}

    def test_a_completion_does_not_recreate_a_record_that_vanished(self, context: Any, records: Any) -> None:
        def run() -> Any:
            records.client.delete_item(TableName="records", Key={"id": {"S": KEY.record_id}})
            return RECEIPT

        with pytest.raises(FenceLostError, match="belongs to nobody"):
            deliver(charging(run), Order("o-1"), context)
        assert records.items() == []

    def test_every_attempt_has_an_owner_of_its_own(self, context: Any, records: Any) -> None:
        owners: list[str] = []

        def run() -> Any:
            owners.append(records.only()["owner"]["S"])
            raise TimeoutError

        for _ in range(2):
            with pytest.raises(TimeoutError):
                deliver(charging(run), Order("o-1"), context)
        assert len(set(owners)) == 2


class TestLostResponses:
    def test_a_claim_is_recognised_as_ones_own(self, context: Any, output: Any, lose_response: Any) -> None:
        sent = lose_response("PutItem")
        assert deliver(charging(), Order("o-1"), context) == RECEIPT
        assert sent == ["PutItem", "PutItem"]
        assert output().outcomes == ["executed"]

    def test_a_completion_is_recognised_as_ones_own(
        self, context: Any, records: Any, output: Any, lose_response: Any
    ) -> None:
        sent = lose_response("UpdateItem")
        assert deliver(charging(), Order("o-1"), context) == RECEIPT
        assert sent == ["UpdateItem", "UpdateItem"]
        assert output().outcomes == ["executed"]
        assert records.only()["status"]["S"] == "COMPLETED"

    def test_a_release_is_recognised_as_ones_own(
        self, context: Any, records: Any, output: Any, lose_response: Any
    ) -> None:
        def fail() -> Any:
            raise TimeoutError

        sent = lose_response("DeleteItem")
        with pytest.raises(TimeoutError):
            deliver(charging(fail), Order("o-1"), context)
        assert sent == ["DeleteItem", "DeleteItem"]
        assert output().outcomes == ["released"]
        assert records.items() == []


class TestSeparation:
    def test_nested_operations_do_not_mix(self, context: Any, records: Any, output: Any) -> None:
        inner = charging(name="inner/v1")
        outer = charging(lambda: deliver_inside(inner), name="outer/v1")

        def deliver_inside(effect: Any) -> Any:
            effect(Order("o-2"))
            return effect(Order("o-1"))

        for _ in range(2):
            deliver(outer, Order("o-1"), context)
        assert {item["status"]["S"] for item in records.items()} == {"COMPLETED"}
        assert sorted(item["id"]["S"].split("#")[0] for item in records.items()) == [
            "inner/v1",
            "inner/v1",
            "outer/v1",
        ]
        assert output().outcomes == ["executed", "executed", "executed", "replayed"]

    @pytest.mark.parametrize("again", range(5))
    def test_threads_do_not_mix(self, context: Any, records: Any, again: int) -> None:
        barrier = threading.Barrier(4)
        results: dict[int, Any] = {}

        def effect_for(number: int) -> Effect[Order, Receipt]:
            def run() -> Any:
                barrier.wait(5)
                return Receipt(f"c-{number}", Decimal(number), RECEIPT.at, [])

            return charging(run, name=f"threaded/v{1 + number % 2}")

        def work(number: int) -> None:
            barrier.wait(5)  # all at once, in a cold environment: they make the client together
            results[number] = effect_for(number)(Order(f"o-{number // 2}"))

        with invocation(context):
            threads = [
                threading.Thread(target=contextvars.copy_context().run, args=(work, number)) for number in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(10)
        assert {number: result.charge_id for number, result in results.items()} == {n: f"c-{n}" for n in range(4)}
        assert {item["status"]["S"] for item in records.items()} == {"COMPLETED"}
        assert len(records.items()) == 4

    def test_outside_an_invocation_a_call_is_refused(self) -> None:
        with pytest.raises(NoInvocationError, match="wanted the call inside process_queue, process_event or"):
            charging()(Order("o-1"))

    def test_the_kill_switch_of_stock_powertools_has_no_effect(self, context: Any, environment: Any) -> None:
        environment.setenv("POWERTOOLS_IDEMPOTENCY_DISABLED", "true")
        runs: list[int] = []
        for _ in range(2):
            deliver(charging(lambda: (runs.append(1), RECEIPT)[1]), Order("o-1"), context)
        assert runs == [1]
