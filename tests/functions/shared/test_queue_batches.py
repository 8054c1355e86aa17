"""Batches of the queue: messages at once, one execution a key, a tail that stays untouched, nothing left behind."""

import contextvars
import importlib.util
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import shared.queue
from shared.aws import CONNECTIONS, dynamodb
from shared.codec import JsonObject, from_json
from shared.http_provider import HttpProvider
from shared.invocation import current_invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Effect, Operation
from shared.queue import process_queue

NAME = "charge/v1"


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: str = "10.00"
    note: str = ""


def parse(body: JsonObject) -> Order:
    return from_json(Order, body, "Order")


def charging(run: Callable[[Order], str], **options: Any) -> Effect[Order, str]:
    """An operation whose effect is `run`."""

    def charge(order: Order, key: IdempotencyKey) -> str:
        return run(order)

    return Operation(NAME, key=business_key("orderId"), result=str, **options).effect(charge)


def failed(response: Any) -> list[str]:
    return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]


@pytest.fixture
def batch(message: Any) -> Callable[..., dict[str, Any]]:
    """Build a batch of orders; an order id alone will do. Message ids are m0, m1, ..."""

    def build(*orders: Any) -> dict[str, Any]:
        bodies = [order if isinstance(order, dict) else {"orderId": order} for order in orders]
        return {"Records": [message(body, f"m{number}") for number, body in enumerate(bodies)]}

    return build


@dataclass
class Running:
    """Counts effects and how many run at the same moment."""

    peak: int = 0
    now: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    _lock: Any = field(default_factory=threading.Lock)

    @contextmanager
    def one(self, order: Order) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.peak = max(self.peak, self.now)
            self.effects[order.order_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1


@pytest.fixture
def requests(tables: Any) -> Counter[str]:
    """Requests to the idempotency table, counted at the wire."""
    sent: Counter[str] = Counter()
    dynamodb().meta.events.register(
        "before-send.dynamodb", lambda event_name, **_: sent.update([event_name.split(".")[-1]])
    )
    return sent


class TestAtOnce:
    def test_as_many_as_the_batch_holds(self, batch: Any, context: Any) -> None:
        together = threading.Barrier(10)

        def run(order: Order) -> str:
            together.wait(timeout=30)
            return order.order_id

        assert failed(process_queue(batch(*"abcdefghij"), context, each=charging(run), parse=parse)) == []

    @pytest.mark.parametrize(("asked", "peak"), [({"at_most": 1}, 1), ({"at_most": 3}, 3), ({}, CONNECTIONS)])
    def test_never_more_than_asked(self, batch: Any, context: Any, asked: dict[str, int], peak: int) -> None:
        running, together = Running(), threading.Barrier(peak)

        def run(order: Order) -> str:
            with running.one(order):
                together.wait(timeout=30)
            return order.order_id

        orders = [f"o-{number}" for number in range(2 * peak)]
        assert failed(process_queue(batch(*orders), context, each=charging(run), parse=parse, **asked)) == []
        assert running.peak == peak
        assert running.effects == dict.fromkeys(orders, 1)

    @pytest.mark.parametrize("asked", [0, 11])
    def test_a_number_that_the_connections_do_not_fit_is_refused(self, batch: Any, context: Any, asked: int) -> None:
        with pytest.raises(ValueError, match=rf"at_most is {asked}; wanted 1 to 10, the connections of the client"):
            process_queue(batch("a"), context, each=charging(str), parse=parse, at_most=asked)

    def test_every_client_has_a_connection_for_each(self, environment: Any) -> None:
        assert dynamodb().meta.config.max_pool_connections == CONNECTIONS
        assert HttpProvider("https://provider.example", 2)._pool.connection_pool_kw["maxsize"] == CONNECTIONS

    def test_without_the_module_one_runs_after_the_other(self, batch: Any, context: Any, monkeypatch: Any) -> None:
        spec = importlib.util.spec_from_file_location("queue_alone", shared.queue.__file__)
        assert spec is not None
        assert spec.loader is not None
        alone = importlib.util.module_from_spec(spec)
        with monkeypatch.context() as deleted:
            deleted.setitem(sys.modules, "shared.concurrent_batch", None)
            spec.loader.exec_module(alone)
        running = Running()

        def run(order: Order) -> str:
            with running.one(order):
                time.sleep(0.01)
            return order.order_id

        assert failed(alone.process_queue(batch("a", {}, "b"), context, each=charging(run), parse=parse)) == ["m1"]
        assert (running.peak, running.effects) == (1, {"a": 1, "b": 1})


class TestApart:
    def test_context_variables_stay_with_their_message(self, batch: Any, context: Any) -> None:
        mark: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="nobody's")
        mark.set("caller's")
        together = threading.Barrier(10)
        seen: dict[str, tuple[str, str, str | None]] = {}

        def run(order: Order) -> str:
            before = mark.get()
            mark.set(order.order_id)
            together.wait(timeout=30)
            seen[order.order_id] = (before, mark.get(), current_invocation().delivery_id)
            return ""

        process_queue(batch(*"abcdefghij"), context, each=charging(run), parse=parse)
        assert seen == {name: ("caller's", name, f"m{number}") for number, name in enumerate("abcdefghij")}
        assert mark.get() == "caller's"

    def test_nested_operations_of_ten_messages_never_mix(self, batch: Any, context: Any, records: Any) -> None:
        together = threading.Barrier(10)

        def reserve(order: Order, key: IdempotencyKey) -> str:
            together.wait(timeout=30)
            return f"reserved {order.order_id}"

        reserving = Operation("reserve/v1", key=business_key("orderId"), result=str).effect(reserve)

        def run(order: Order) -> str:
            return f"charged and {reserving(order)}"

        assert failed(process_queue(batch(*"abcdefghij"), context, each=charging(run), parse=parse)) == []
        found = {item["id"]["S"]: (item["status"]["S"], json.loads(item["data"]["S"])) for item in records.items()}
        wanted = {}
        for name in "abcdefghij":
            wanted[IdempotencyKey("reserve/v1", (name,)).record_id] = ("COMPLETED", f"reserved {name}")
            wanted[IdempotencyKey(NAME, (name,)).record_id] = ("COMPLETED", f"charged and reserved {name}")
        assert found == wanted

    def test_log_lines_and_metrics_of_ten_messages_stay_whole(self, batch: Any, context: Any, output: Any) -> None:
        together = threading.Barrier(10)
        process_queue(batch(*"abcdefghij"), context, each=charging(lambda _: str(together.wait(30))), parse=parse)
        seen = output()
        assert {(line["delivery_id"], line["record_id"], line["outcome"]) for line in seen.logs} == {
            (f"m{number}", IdempotencyKey(NAME, (name,)).record_id, "executed")
            for number, name in enumerate("abcdefghij")
        }
        assert len(seen.logs) == 10
        assert seen.totals(NAME) == {"Executed": 10}


class TestDuplicates:
    def test_equal_messages_run_once_and_cost_nothing_more(
        self, batch: Any, context: Any, requests: Any, output: Any
    ) -> None:
        running = Running()

        def run(order: Order) -> str:
            with running.one(order):
                return order.order_id

        event = batch("a", "b", "a", "a")
        assert failed(process_queue(event, context, each=charging(run), parse=parse)) == []
        assert running.effects == {"a": 1, "b": 1}
        assert requests == {"PutItem": 2, "UpdateItem": 2}
        seen = output()
        assert seen.totals(NAME) == {"Executed": 2, "Collapsed": 2}
        collapsed = [line for line in seen.logs if line["outcome"] == "collapsed"]
        assert [(line["delivery_id"], line["same_as"]) for line in collapsed] == [("m2", "m0"), ("m3", "m0")]

    def test_they_share_a_failure(self, batch: Any, context: Any) -> None:
        running = Running()

        def run(order: Order) -> str:
            with running.one(order):
                raise TimeoutError

        assert failed(process_queue(batch("a", "a"), context, each=charging(run), parse=parse)) == ["m0", "m1"]
        assert running.effects == {"a": 1}

    def test_the_same_message_twice_is_reported_once(self, message: Any, context: Any) -> None:
        def run(order: Order) -> str:
            raise TimeoutError

        event = {"Records": [message({"orderId": "a"}, "m0")] * 2}
        assert failed(process_queue(event, context, each=charging(run), parse=parse)) == ["m0"]

    def test_another_payload_for_the_key_is_refused_not_collapsed(self, batch: Any, context: Any, output: Any) -> None:
        running = Running()

        def run(order: Order) -> str:
            with running.one(order):
                time.sleep(0.05)
                return order.amount

        event = batch({"orderId": "a", "amount": "1"}, {"orderId": "a", "amount": "2"}, {"orderId": "a", "amount": "1"})
        assert failed(process_queue(event, context, each=charging(run), parse=parse)) == ["m1"]
        assert (running.effects, running.peak) == ({"a": 1}, 1), "never at once: one would see the other in progress"
        (line,) = [line for line in output().logs if line["level"] == "ERROR"]
        assert (line["delivery_id"], line["error"]) == ("m1", "FingerprintMismatchError")

    def test_fields_outside_the_fingerprint_do_not_tell_messages_apart(self, batch: Any, context: Any) -> None:
        running = Running()

        def run(order: Order) -> str:
            with running.one(order):
                return order.note

        event = batch({"orderId": "a", "note": "first"}, {"orderId": "a", "note": "again"})
        effect = charging(run, fingerprint=("amount",))
        assert failed(process_queue(event, context, each=effect, parse=parse)) == []
        assert running.effects == {"a": 1}


class TestDeadline:
    def test_the_tail_stays_untouched_and_is_reported(
        self, batch: Any, context: Any, records: Any, output: Any
    ) -> None:
        def run(order: Order) -> str:
            context.remaining_ms = 1_999  # one call that gets no answer takes 2 s
            return ""

        context.remaining_ms = 3_900
        response = process_queue(batch("a", "b", "c"), context, each=charging(run), parse=parse, at_most=1)
        assert failed(response) == ["m1", "m2"]
        assert records.only()["id"]["S"] == IdempotencyKey(NAME, ("a",)).record_id
        seen = output()
        assert seen.totals(NAME) == {"Executed": 1, "NotStarted": 2}
        assert (seen.logs[1]["seconds_left"], seen.logs[1]["seconds_needed"]) == (1.999, 2)

    def test_a_message_gets_as_long_as_the_slowest_before_it(self, batch: Any, context: Any) -> None:
        started: list[str] = []

        def run(order: Order) -> str:
            started.append(order.order_id)
            context.remaining_ms -= 3_500
            return ""

        response = process_queue(batch("a", "b", "c"), context, each=charging(run), parse=parse, at_most=1)
        assert (started, failed(response)) == (["a", "b"], ["m2"]), (
            "3 s are left, more than a call, less than a message"
        )

    def test_a_failing_message_counts_as_well(self, batch: Any, context: Any) -> None:
        def run(order: Order) -> str:
            context.remaining_ms -= 6_000
            raise TimeoutError

        response = process_queue(batch("a", "b"), context, each=charging(run), parse=parse, at_most=1)
        assert failed(response) == ["m0", "m1"]
        assert context.remaining_ms == 4_000, "the second never ran"


class TestNothingLeftBehind:
    def test_completions_are_written_while_others_run(self, batch: Any, context: Any, records: Any) -> None:
        first = IdempotencyKey(NAME, ("a",)).record_id

        def run(order: Order) -> str:
            if order.order_id == "b":
                until = time.monotonic() + 30
                while not any(item["id"]["S"] == first and "data" in item for item in records.items()):
                    assert time.monotonic() < until, "the completion of a waits for b"
                    time.sleep(0.01)
            return order.order_id

        assert failed(process_queue(batch("a", "b"), context, each=charging(run), parse=parse)) == []

    def test_all_are_written_when_it_returns(self, batch: Any, context: Any, records: Any) -> None:
        running = Running()

        def run(order: Order) -> str:
            with running.one(order):
                return order.order_id

        orders = [f"o-{number}" for number in range(25)]
        assert failed(process_queue(batch(*orders), context, each=charging(run), parse=parse)) == []
        assert Counter(item["status"]["S"] for item in records.items()) == {"COMPLETED": 25}
        assert running.now == 0

    def test_batches_within_batches_do_not_wait_for_each_other(self, batch: Any, context: Any) -> None:
        together = threading.Barrier(10)

        def run(order: Order) -> str:
            if order.order_id in "abcdefghij":
                together.wait(timeout=30)  # no thread is free now
                inner = batch(*(f"{order.order_id}-{number}" for number in range(3)))
                assert failed(process_queue(inner, context, each=effect, parse=parse)) == []
            return order.order_id

        effect = charging(run)
        assert failed(process_queue(batch(*"abcdefghij"), context, each=effect, parse=parse)) == []

    def test_the_end_of_the_process_ends_the_batch(self, batch: Any, context: Any) -> None:
        running = Running()
        second_started = threading.Event()

        def run(order: Order) -> str:
            with running.one(order):
                if order.order_id == "a":
                    second_started.wait(30)
                    raise SystemExit
                second_started.set()
                time.sleep(0.2)
                return order.order_id

        with pytest.raises(SystemExit):
            process_queue(batch(*"abcdef"), context, each=charging(run), parse=parse, at_most=2)
        assert running.now == 0, "what ran was let end"
        assert running.effects["a"] == running.effects["b"] == 1
        assert len(running.effects) < 6, "messages that still waited are dropped"
