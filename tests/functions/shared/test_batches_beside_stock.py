"""What the stock batch processor leaves open (fact 4), played twice: stock shows it, ours shows it gone."""

import importlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from shared.errors import WrongSourceError
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation
from shared.queue import process_queue
from shared.stream import process_stream

both = pytest.mark.parametrize("side", ["stock", "ours"])
Handler = Callable[[dict[str, Any]], list[str]]


@dataclass(frozen=True)
class Order:
    order_id: str


@pytest.fixture
def handling(context: Any) -> Callable[[str, Callable[[str], str]], Handler]:
    """Build a queue handler whose effect is `run(order_id)`, stock or ours; it answers the ids that failed."""

    def build(side: str, run: Callable[[str], str]) -> Handler:
        if side == "stock":
            config = IdempotencyConfig(event_key_jmespath="orderId", lambda_context=context)
            layer = DynamoDBPersistenceLayer(table_name="records", boto3_client=_client())
            charge: Any = idempotent_function(data_keyword_argument="order", persistence_store=layer, config=config)(
                lambda order: run(order["orderId"])
            )
            processor = BatchProcessor(event_type=EventType.SQS)

            def stock(event: dict[str, Any]) -> Any:
                return process_partial_response(
                    event, lambda record: charge(order=json.loads(record.body)), processor, context
                )

            return lambda event: [one["itemIdentifier"] for one in stock(event)["batchItemFailures"]]

        def effect(order: Order, key: IdempotencyKey) -> str:
            return run(order.order_id)

        ours = Operation("charge/v1", key=business_key("orderId"), result=str).effect(effect)
        parse = lambda body: Order(str(body["orderId"]))  # noqa: E731 - as short as a handler's own
        return lambda event: [
            one["itemIdentifier"] for one in process_queue(event, context, each=ours, parse=parse)["batchItemFailures"]
        ]

    return build


def _client() -> Any:
    return importlib.import_module("shared.aws").dynamodb()


@both
def test_all_failed_is_reported_without_an_error_of_the_function(side: str, handling: Any, message: Any) -> None:
    def run(order_id: str) -> str:
        raise TimeoutError

    handle = handling(side, run)
    event = {"Records": [message({"orderId": "a"}, "m0"), message({"orderId": "b"}, "m1")]}
    if side == "stock":
        with pytest.raises(BatchProcessingError):
            handle(event)
    else:
        assert handle(event) == ["m0", "m1"]


@both
def test_messages_run_at_once(side: str, handling: Any, message: Any) -> None:
    both_run = threading.Barrier(2)

    def run(order_id: str) -> str:
        both_run.wait(timeout=1 if side == "stock" else 30)
        return order_id

    event = {"Records": [message({"orderId": "a"}, "m0"), message({"orderId": "b"}, "m1")]}
    if side == "stock":
        with pytest.raises(BatchProcessingError):
            handling(side, run)(event)  # the first waits in vain for the second
    else:
        assert handling(side, run)(event) == []


@both
def test_a_duplicate_in_the_batch_costs_no_request(side: str, handling: Any, message: Any) -> None:
    sent: Counter[str] = Counter()
    handle = handling(side, str)
    _client().meta.events.register(
        "before-send.dynamodb", lambda event_name, **_: sent.update([event_name.rpartition(".")[2]])
    )
    event = {"Records": [message({"orderId": order}, f"m{n}") for n, order in enumerate("aba")]}
    assert handle(event) == []
    assert sent.total() == {"stock": 5, "ours": 4}[side]


@both
def test_messages_that_no_longer_fit_stay_untouched(side: str, handling: Any, message: Any, context: Any) -> None:
    started: list[str] = []

    def run(order_id: str) -> str:
        started.append(order_id)
        context.remaining_ms = 5  # the next one would be killed in the middle
        return order_id

    first = {"Records": [message({"orderId": order}, f"m{order}") for order in "ab"]}
    context.remaining_ms = 5 if side == "ours" else 10_000
    failed = handling(side, run)(first)
    assert (started, failed) == {"stock": (["a", "b"], []), "ours": ([], ["ma", "mb"])}[side]


@both
def test_a_fifo_queue_through_the_standard_call_is_refused(side: str, handling: Any, message: Any) -> None:
    done: list[str] = []

    def run(order_id: str) -> str:
        if order_id == "b":
            raise TimeoutError
        done.append(order_id)
        return order_id

    fifo = {"eventSourceARN": "arn:aws:sqs:us-east-1:111122223333:orders.fifo"}
    event = {"Records": [{**message({"orderId": order}, f"m{order}"), **fifo} for order in "abc"]}
    if side == "stock":
        assert handling(side, run)(event) == ["mb"]
        assert done == ["a", "c"], "c overtook b"
    else:
        with pytest.raises(WrongSourceError, match="FIFO"):
            handling(side, run)(event)
        assert done == []


@both
def test_a_stream_stops_at_the_first_failure(side: str, change: Any, context: Any) -> None:
    done: list[int] = []

    def index(version: int) -> None:
        if version == 2:
            raise TimeoutError
        done.append(version)

    event = {"Records": [change("MODIFY", version, str(version)) for version in (1, 2, 3, 4)]}
    if side == "stock":
        processor = BatchProcessor(event_type=EventType.DynamoDBStreams)
        response: Any = process_partial_response(
            event, lambda record: index(int(record.dynamodb.new_image["version"])), processor, context
        )
    else:
        response = process_stream(
            event,
            context,
            operation="index/v1",
            each=lambda one: index(int(one.require_new_image()["version"])),
        )
    assert response == {"batchItemFailures": [{"itemIdentifier": "2"}]}
    assert done == {"stock": [1, 3, 4], "ours": [1]}[side], "Lambda comes back with 2, 3 and 4: 2 would land after 4"


@both
def test_one_dying_message_takes_no_half_done_message_with_it(side: str, handling: Any, message: Any) -> None:
    """The stock processor stops where it stands; ours ends what runs, then lets the error out."""
    b_runs = threading.Event()
    done: list[str] = []

    def run(order_id: str) -> str:
        if order_id == "a":
            b_runs.wait(1 if side == "stock" else 30)
            raise SystemExit
        b_runs.set()
        time.sleep(0.1)
        done.append(order_id)
        return order_id

    event = {"Records": [message({"orderId": order}, f"m{order}") for order in "ab"]}
    with pytest.raises(SystemExit):
        handling(side, run)(event)
    assert done == {"stock": [], "ours": ["b"]}[side]
