"""Eight threads on distinct keys at 10 ms store latency: how near one environment comes to eight times one thread.

    python -m bench.threads [calls a thread]

The effect costs nothing, so that only the claims and completions are measured. Each rate is the best of three. The
limit is the same two requests on the plain client.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from bench.queue_events import Context, prepare, silenced
from bench.wire import RECORDS, Wire

THREADS, STORE = 8, 0.010


def main(calls: int) -> None:
    """Measure one thread, then eight."""
    prepare()
    wire = Wire(latency={RECORDS: STORE}).install()
    lines = []
    with silenced(), contextlib.ExitStack() as invoked:
        for name, call in (("limit", _plain()), ("stock", _stock()), ("ours", _ours(invoked))):
            call(f"{name}-first")
            rate: dict[int, float] = {}
            for threads in (1, THREADS) * 3:
                wire.clear()
                rate[threads] = max(rate.get(threads, 0.0), _rate(call, threads, calls))
            lines.append((name, rate[1], rate[THREADS], rate[THREADS] / rate[1] / THREADS))
    print(f"{THREADS} threads, distinct keys, store {STORE * 1000:.0f} ms, 2 requests an operation")
    for name, one, many, linear in lines:
        print(
            f"{name:6} {one:5.1f}/s with one, {many:6.1f}/s with eight: {linear:.0%} of linear (wanted at least 90 %)"
        )


def _rate(call: Callable[[str], Any], threads: int, calls: int) -> float:
    def work(thread: int) -> None:
        for number in range(calls):
            call(f"o-{threads}-{thread}-{number}")

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(copy_context().run, work, thread) for thread in range(threads)]:
            done.result()
    return threads * calls / (time.perf_counter() - started)


def _ours(invoked: contextlib.ExitStack) -> Callable[[str], Any]:
    """One invocation for all calls, as in a batch."""
    from bench.requests import Order  # noqa: PLC0415
    from shared.invocation import invocation  # noqa: PLC0415 - clients must come after the wire
    from shared.key import IdempotencyKey, business_key  # noqa: PLC0415
    from shared.operation import Operation  # noqa: PLC0415

    def charge(order: Order, key: IdempotencyKey) -> str:  # noqa: ARG001
        return order.order_id

    effect = Operation("charge-order/v1", key=business_key("orderId"), result=str).effect(charge)
    invoked.enter_context(invocation(Context(seconds=900)))  # type: ignore[arg-type]
    return lambda order_id: effect(Order(order_id))


def _plain() -> Callable[[str], Any]:
    from bench.plain_calls import claim, complete  # noqa: PLC0415
    from shared.aws import dynamodb  # noqa: PLC0415

    def call(order_id: str) -> None:
        claim(dynamodb(), order_id)
        complete(dynamodb(), order_id)

    return call


def _stock() -> Callable[[str], Any]:
    from aws_lambda_powertools.utilities.idempotency import (  # noqa: PLC0415
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )

    config = IdempotencyConfig(event_key_jmespath="orderId")
    config.register_lambda_context(Context(seconds=900))  # type: ignore[arg-type]
    charge: Any = idempotent_function(
        data_keyword_argument="order", persistence_store=DynamoDBPersistenceLayer(table_name=RECORDS), config=config
    )(lambda order: order["orderId"])
    return lambda order_id: charge(order={"orderId": order_id})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
