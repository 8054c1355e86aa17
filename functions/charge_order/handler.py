"""Charge an order: standard SQS queue, payment provider that takes a key; effectively once an order."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared.batch import BatchResponse
from shared.codec import JsonObject, from_json
from shared.errors import ShapeError
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation
from shared.provider import bound_provider
from shared.queue import process_queue


@dataclass(frozen=True)
class Order:
    """An order to charge: body `{"orderId": "o-1", "amount": "10.00"}`, the amount as decimal text."""

    order_id: str
    amount: Decimal

    def __post_init__(self) -> None:
        if self.amount <= 0 or int(self.amount.as_tuple().exponent) < -2:
            raise ShapeError("Order.amount is not a price; wanted more than 0 and at most two decimal places")

    @classmethod
    def from_body(cls, body: JsonObject) -> "Order":
        """Parse a message body. Raises ShapeError naming the field."""
        return from_json(cls, body, "Order")


@dataclass(frozen=True)
class Receipt:
    """A charge that was made, or was found made already."""

    charge_id: str
    order_id: str
    amount: Decimal


charge_order = Operation("charge-order/v1", key=business_key("orderId"), result=Receipt, on_unknown_outcome="retry")


@charge_order.effect
def charge(order: Order, key: IdempotencyKey) -> Receipt:
    """Charge through the provider; it sees the same key on every attempt and charges once."""
    charge_id = bound_provider().request(
        {"amount": str(order.amount)}, reference=order.order_id, idempotency_key=key.record_id
    )
    return Receipt(charge_id, order.order_id, order.amount)


def handler(event: Any, context: LambdaContext) -> BatchResponse:
    """Entry point of the function."""
    return process_queue(event, context, each=charge, parse=Order.from_body)
