"""A batch of ten: ours beside stock Powertools and the limit, 10 ms store and 50 ms provider latency.

    python -m bench.batch [rounds]

The limit is measured: the same three calls a message (claim, provider, completion) by ten threads on a plain client.
Its waits alone take 70 ms; what it takes beyond them is this machine's SDK. The mixed batch has one message that the
provider fails, one duplicate and one whose order is in progress elsewhere; its limit is the same.
"""

import hashlib
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from bench.conditions import Item
from bench.queue_events import Context, batch, prepare, silenced
from bench.wire import PAYMENTS, RECORDS, Wire

STORE, PROVIDER = 0.010, 0.050
WAITS = STORE + PROVIDER + STORE
FAILED = {"plain": [], "mixed": ["m3", "m7"]}
OPERATION = "charge-order/v1"


def main(rounds: int) -> None:
    """Measure all in turn, so that what disturbs the machine disturbs each of them."""
    prepare()
    wire = Wire(latency={RECORDS: STORE, PAYMENTS: PROVIDER}).install()
    with silenced():
        # Clients must come after the wire, and a logger keeps the output it finds.
        from bench.plain_calls import charge_all  # noqa: PLC0415
        from bench.stock_handler import handler as stock  # noqa: PLC0415
        from charge_order.handler import handler as ours  # noqa: PLC0415
        from shared.aws import dynamodb  # noqa: PLC0415

        seconds: defaultdict[str, list[float]] = defaultdict(list)
        for run in range(rounds + 1):
            for kind, failed in FAILED.items():
                orders = _orders(wire, kind, run)
                for name, handler in (("stock", stock), ("ours", ours)):
                    response, taken = _timed(handler, batch(*orders), Context())
                    found = [failure["itemIdentifier"] for failure in response["batchItemFailures"]]
                    if found != failed:
                        raise SystemExit(
                            f"{name}, {kind}: messages {found} failed; wanted {failed}: nothing to compare"
                        )
                    seconds[f"{name} {kind}"].append(taken)
            wire.clear()
            seconds["limit"].append(_timed(charge_all, dynamodb(), [f"o-{n}" for n in range(10)])[1])
    print(f"batch of 10, store {STORE * 1000:.0f} ms, provider {PROVIDER * 1000:.0f} ms, {rounds} rounds")
    print("wanted: at least 8 x faster than stock, at most 1.15 x the limit")
    # The first round makes clients and threads; it is not counted.
    counted = {name: taken[1:] for name, taken in seconds.items()}
    for view, of in (("median of the rounds", statistics.median), ("quietest round", min)):
        limit = of(counted["limit"])
        print(f"{view}: limit {limit * 1000:.1f} ms, {limit / WAITS:.2f} x its waits of {WAITS * 1000:.0f} ms")
        for kind in FAILED:
            own, other = of(counted[f"ours {kind}"]), of(counted[f"stock {kind}"])
            print(
                f"  {kind:6} {own * 1000:5.1f} ms, {own / limit:.2f} x the limit, {own / WAITS:.2f} x the waits; "
                f"stock {other * 1000:.1f} ms, ours is {other / own:.1f} x faster (the limit: {other / limit:.1f})"
            )


def _orders(wire: Wire, kind: str, run: int) -> list[str]:
    """Ten orders nobody has seen, and what the wire holds about them."""
    wire.clear()
    orders = [f"o-{kind}-{run}-{n}" for n in range(10)]
    if kind == "mixed":
        orders[9] = orders[5]
        for provider_key in (orders[3], _record_id(OPERATION, [orders[3]])):
            wire.items[PAYMENTS, provider_key] = {"id": {"S": provider_key}, "failing": {"BOOL": True}}
        for record_id in (
            _record_id("charge-order.bench.stock_handler.charge", orders[7]),
            _record_id(OPERATION, [orders[7]]),
        ):
            wire.items[RECORDS, record_id] = _in_progress(record_id)
    return orders


def _record_id(prefix: str, key: object) -> str:
    return f"{prefix}#{hashlib.sha256(json.dumps(key).encode()).hexdigest()}"


def _in_progress(record_id: str) -> Item:
    later = int(time.time()) + 60
    return {
        "id": {"S": record_id},
        "status": {"S": "INPROGRESS"},
        "expiration": {"N": str(later)},
        "in_progress_expiration": {"N": str(later * 1000)},
    }


def _timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    result = call(*arguments)
    return result, time.perf_counter() - started


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
