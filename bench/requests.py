"""Requests an event costs, counted at the wire, and its write units: stock Powertools, ours, the limit.

    python -m bench.requests

Requests to DynamoDB and S3; units of the idempotency table only. A commit's request carries the business write, too.
Exits with an error when ours needs more requests than the limit.
"""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.queue_events import Context, prepare, silenced
from bench.wire import RECORDS, Wire

SMALL, LARGE = "x" * 500, "x" * 30_000
ORDERS = "orders"


@dataclass(frozen=True)
class Order:
    """What the measured operations take."""

    order_id: str


@dataclass(frozen=True)
class Row:
    """A situation: what is called before and what is counted; `most` are the requests ours may need."""

    situation: str
    most: int
    stock: Callable[[], Any] | None
    ours: Callable[[], Any]
    before: str = ""  # "stock" and "ours" are called once before: "done", or left "in progress"


def main() -> None:
    """Print one line a situation."""
    prepare()
    wire = Wire().install()
    with silenced():
        rows = _rows()
        lines = [(row, _counted(wire, row, row.stock), _counted(wire, row, row.ours)) for row in rows]
    print(f"{'situation':34} {'stock':>22} {'ours':>22} {'limit':>6}   requests (write units, computed)")
    for row, stock, ours in lines:
        print(f"{row.situation:34} {_shown(stock):>22} {_shown(ours):>22} {row.most:>6}")
    over = [row.situation for row, _, ours in lines if ours is not None and ours[0].total() > row.most]
    if over:
        sys.exit(f"more requests than the limit: {', '.join(over)}")


def _counted(wire: Wire, row: Row, call: Callable[[], Any] | None) -> Any:
    if call is None:
        return None
    wire.clear()
    if row.before == "done":
        call()
    elif row.before == "in progress":
        _call(call)
        for item in wire.items.values():
            item.pop("data", None)
            item["status"] = {"S": "INPROGRESS"}
    wire.take()
    _call(call)
    return wire.take()


def _call(call: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):  # in progress, or the effect's own failure: that is what is measured
        call()


def _shown(counted: Any) -> str:
    if counted is None:
        return "-"
    requests, units = counted
    return f"{requests.total()} ({units})"


def _rows() -> list[Row]:
    stock, ours = _stock, _ours
    return [
        Row("first delivery", 2, stock(SMALL), ours(SMALL)),
        Row("first delivery, own table: commit", 1, None, _committing(claim=False)),
        Row("the same, claim + commit", 2, None, _committing(claim=True)),
        Row("duplicate", 1, stock(SMALL), ours(SMALL), "done"),
        Row("duplicate of a commit", 1, None, _committing(claim=False), "done"),
        Row("duplicate, warm cache", 0, stock(SMALL, warm=True), ours(SMALL, warm=True), "done"),
        Row("in progress elsewhere", 1, stock(SMALL), ours(SMALL), "in progress"),
        Row("failing effect, released", 2, stock(None), ours(None)),
        Row("first delivery, 30 KB result", 3, stock(LARGE), ours(LARGE, apart=True)),
        Row("duplicate, 30 KB result", 2, stock(LARGE), ours(LARGE, apart=True), "done"),
        Row("the same, warm cache", 0, stock(LARGE, warm=True), ours(LARGE, warm=True, apart=True), "done"),
    ]


def _answer(result: str | None) -> str:
    if result is None:
        raise TimeoutError
    return result


def _stock(result: str | None, warm: bool = False) -> Callable[[], Any]:
    from aws_lambda_powertools.utilities.idempotency import (  # noqa: PLC0415 - clients must come after the wire
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )

    layer = DynamoDBPersistenceLayer(table_name=RECORDS)
    config = IdempotencyConfig(event_key_jmespath="orderId", use_local_cache=warm)
    config.register_lambda_context(Context())  # type: ignore[arg-type]
    charge: Any = idempotent_function(data_keyword_argument="order", persistence_store=layer, config=config)(
        lambda order: _answer(result and f"{order['orderId']} {result}")
    )
    return lambda: charge(order={"orderId": "o-1"})


def _ours(result: str | None, warm: bool = False, apart: bool = False) -> Callable[[], Any]:
    from shared.key import IdempotencyKey, business_key  # noqa: PLC0415
    from shared.large_results import LargeResults  # noqa: PLC0415
    from shared.operation import Operation  # noqa: PLC0415
    from shared.warm_cache import WarmCache  # noqa: PLC0415

    def charge(order: Order, key: IdempotencyKey) -> str:  # noqa: ARG001
        return _answer(result)

    operation = Operation(
        "charge-order/v1",
        key=business_key("orderId"),
        result=str,
        cache=WarmCache() if warm else None,
        large_results=LargeResults() if apart else None,
    )
    charge.__annotations__["key"] = IdempotencyKey
    return _invoked(operation.effect(charge))


def _committing(claim: bool) -> Callable[[], Any]:
    from shared.commit import Commit, commit  # noqa: PLC0415
    from shared.key import IdempotencyKey, business_key  # noqa: PLC0415
    from shared.operation import Operation  # noqa: PLC0415

    def place(order: Order, key: IdempotencyKey) -> Commit[str]:  # noqa: ARG001
        return Commit(SMALL, [{"Put": {"TableName": ORDERS, "Item": {"id": {"S": order.order_id}}}}])

    return _invoked(commit(Operation("place-order/v1", key=business_key("orderId"), result=str), claim=claim)(place))


def _invoked(effect: Callable[[Any], Any]) -> Callable[[], Any]:
    from shared.invocation import invocation  # noqa: PLC0415

    def call() -> Any:
        with invocation(Context()):  # type: ignore[arg-type]
            return effect(Order("o-1"))

    return call


if __name__ == "__main__":
    main()
