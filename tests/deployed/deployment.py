"""The deployed app as the tests see it: what they send, and what they look at afterwards."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer

from sandbox_provider.control import effects
from shared.key import IdempotencyKey

SETTLE_WITHIN = 120.0
"""Seconds until a story must have ended. A message that meets a claim in progress comes back after one visibility
timeout (19 s); a busy machine may need a few of those."""


@dataclass(frozen=True)
class Deployment:
    """Stack outputs by name, and clients that talk to where the stacks are."""

    outputs: Mapping[str, str] = field(repr=False)
    sqs: Any = field(repr=False)
    events: Any = field(repr=False)
    dynamodb: Any = field(repr=False)

    def output(self, name: str) -> str:
        """One output. Raises `KeyError` naming those there are."""
        if name not in self.outputs:
            raise KeyError(f"The stacks have no output {name}; they have {', '.join(sorted(self.outputs))}")
        return self.outputs[name]

    def send_message(self, order: str, amount: str = "10.00") -> None:
        """Send an order to be charged to the queue."""
        body = json.dumps({"orderId": order, "amount": amount})
        self.sqs.send_message(QueueUrl=self.output("OrdersUrl"), MessageBody=body)

    def put_event(self, order: str, amount: str = "10.00") -> None:
        """Tell the bus that an order was charged."""
        entry = {
            "EventBusName": self.output("OrderEventsName"),
            "Source": "shop.orders",
            "DetailType": "OrderCharged",
            "Detail": json.dumps({"orderId": order, "amount": amount}),
        }
        answer = self.events.put_events(Entries=[entry])
        assert answer["FailedEntryCount"] == 0, answer["Entries"]

    def store_order(self, order: str, version: int, amount: str = "10.00") -> None:
        """Write an order to the Orders table, whose stream feeds the search view."""
        item = {"id": {"S": order}, "version": {"N": str(version)}, "amount": {"S": amount}}
        self.dynamodb.put_item(TableName=self.output("OrdersName"), Item=item)

    def charges(self, order: str) -> int:
        """How often the payment provider charged the order."""
        return effects(self.dynamodb, self.output("PaymentsName")).get(order, 0)

    def mails(self, order: str) -> int:
        """How many mails the mail provider sent about the order."""
        return effects(self.dynamodb, self.output("MailsName")).get(order, 0)

    def record_status(self, operation: str, order: str) -> str | None:
        """Status of the order's idempotency record; None when there is no record."""
        key = IdempotencyKey(operation, (order,)).record_id
        status: str | None = (self._item("RecordsName", key) or {}).get("status")
        return status

    def viewed(self, order: str) -> dict[str, Any] | None:
        """The order's row in the search view; None when there is none."""
        return self._item("SearchViewName", order)

    def messages(self, queue: str) -> int:
        """How many messages the queue of this output holds: waiting, delayed or being worked on."""
        names = [f"ApproximateNumberOfMessages{state}" for state in ("", "Delayed", "NotVisible")]
        found = self.sqs.get_queue_attributes(QueueUrl=self.output(queue), AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def _item(self, table: str, key: str) -> dict[str, Any] | None:
        found = self.dynamodb.get_item(TableName=self.output(table), Key={"id": {"S": key}}, ConsistentRead=True).get(
            "Item"
        )
        read = TypeDeserializer().deserialize
        return None if found is None else {name: read(value) for name, value in found.items()}


@contextmanager
def connected(outputs: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[Deployment]:
    """The deployment that has these outputs, reached with this environment's endpoint and credentials."""
    names = ("sqs", "events", "dynamodb")
    with ExitStack() as opened:
        with pytest.MonkeyPatch.context() as patch:  # clients read the environment when they are made
            patch.delenv("AWS_PROFILE", raising=False)
            for name, value in environment.items():
                patch.setenv(name, value)
            session = boto3.session.Session()
            clients = {name: opened.enter_context(closing(session.client(name))) for name in names}
        yield Deployment(outputs, **clients)


def new_order() -> str:
    """An order id that no other test, and no other run, uses."""
    return f"o-{uuid.uuid4().hex}"


def wait_for(what: str, read: Callable[[], object], wanted: object, within: float = SETTLE_WITHIN) -> None:
    """Read until the value is the wanted one; fail with `what` and the last value after `within` seconds."""
    start = time.monotonic()
    while (found := read()) != wanted:
        if time.monotonic() - start > within:
            pytest.fail(f"{what}: found {found!r} after {within:.0f} s, wanted {wanted!r}", pytrace=False)
        time.sleep(0.2)
