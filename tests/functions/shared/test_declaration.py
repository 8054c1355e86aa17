"""Declarations: what could go wrong during a delivery is refused when the module is imported."""

import inspect
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from shared.errors import DeclarationError, InProgressError
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation


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


def _good(order: Order, key: IdempotencyKey) -> Receipt:
    raise NotImplementedError


class TestDeclaration:
    @pytest.mark.parametrize("name", ["charge", "charge/v0", "Charge/v1", "charge_order/v1", "charge/v1 ", "/v1"])
    def test_a_name_needs_a_version(self, name: str) -> None:
        with pytest.raises(DeclarationError, match="wanted a lower-case name with a version"):
            Operation(name, key=business_key("orderId"), result=Receipt)

    def test_another_way_with_unknown_outcomes_is_refused_by_name(self) -> None:
        with pytest.raises(DeclarationError, match="on_unknown_outcome is 'ignore'; wanted 'retry' or 'park'"):
            Operation("charge/v1", key=business_key("orderId"), result=Receipt, on_unknown_outcome="ignore")

    def test_errors_that_did_not_happen_are_for_park_only(self) -> None:
        with pytest.raises(DeclarationError, match="did_not_happen is for 'park'; wanted none"):
            Operation("charge/v1", key=business_key("orderId"), result=Receipt, did_not_happen=(ValueError,))

    @pytest.mark.parametrize("kind", [ValueError, InProgressError])
    def test_a_remembered_failure_needs_a_message_that_may_be_stored(self, kind: type[Exception]) -> None:
        with pytest.raises(DeclarationError, match=f"permanent {kind.__name__} is no LoggableError"):
            Operation("charge/v1", key=business_key("orderId"), result=Receipt, permanent=(kind,))

    @pytest.mark.parametrize(
        "declared",
        [set[str], bytes, tuple[int, int], dict[int, str], object, Any, list[set[int]], int | str, complex],
    )
    def test_a_result_type_that_json_cannot_carry_is_refused(self, declared: Any) -> None:
        with pytest.raises(DeclarationError, match=r"charge/v1 result is declared as .*; wanted a dataclass, None"):
            Operation("charge/v1", key=business_key("orderId"), result=declared)

    def test_a_field_that_json_cannot_carry_is_named(self) -> None:
        @dataclass
        class Inner:
            tags: set[str]

        @dataclass
        class Outer:
            inner: list[Inner]

        Inner.__annotations__["tags"], Outer.__annotations__["inner"] = set[str], list[Inner]
        with pytest.raises(DeclarationError, match=r"charge/v1 result\.inner\.tags is declared as set\[str\]"):
            Operation("charge/v1", key=business_key("orderId"), result=Outer)

    def test_fields_and_signature_are_checked(self) -> None:
        def declared(**changes: Any) -> None:
            options = {"key": business_key("orderId"), "result": Receipt, **changes}
            function = options.pop("function", _good)
            Operation("charge/v1", **options).effect(function)

        async def late(order: Order, key: IdempotencyKey) -> Receipt:
            raise NotImplementedError

        def keyless(order: Order) -> Receipt:
            raise NotImplementedError

        def untyped(order, key):  # type: ignore[no-untyped-def]
            raise NotImplementedError

        def other(order: Order, key: IdempotencyKey) -> str:
            raise NotImplementedError

        declared()
        with pytest.raises(DeclarationError, match=r"Order has no \['id'\]; wanted some of \['amount', 'orderId'\]"):
            declared(key=business_key("id"))
        with pytest.raises(DeclarationError, match=r"Order has no \['total'\]"):
            declared(fingerprint=("total",))
        with pytest.raises(DeclarationError, match=r"key part amount is .*Decimal.*; wanted str or int"):
            declared(key=business_key("amount"))
        with pytest.raises(DeclarationError, match="the effect is async or a generator; wanted a plain function"):
            declared(function=late)
        for function in (keyless, untyped):
            with pytest.raises(DeclarationError, match="the effect takes"):
                declared(function=function)
        with pytest.raises(DeclarationError, match=r"the effect returns <class 'str'>, declared is .*Receipt"):
            declared(function=other)
        assert not inspect.iscoroutinefunction(_good)
