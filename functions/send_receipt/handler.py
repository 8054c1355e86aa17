"""Send the receipt of a charged order: EventBridge rule, async; mail provider.

Effectively once where the provider takes a key. With a keyless provider (key lifetime 0) an attempt cut
between the mail and its completion is repeated: at least once, no more can be promised.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared.codec import JsonObject, from_json
from shared.events import process_event
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation
from shared.provider import bound_provider


@dataclass(frozen=True)
class ChargedOrder:
    """Detail of an `OrderCharged` event: `{"orderId": "o-1", "amount": "10.00", "email": "..."}`."""

    order_id: str
    amount: Decimal
    email: str | None = None

    @classmethod
    def from_detail(cls, detail: JsonObject) -> "ChargedOrder":
        """Parse an event's detail. Raises ShapeError naming the field."""
        return from_json(cls, detail, "ChargedOrder")


@dataclass(frozen=True)
class SentReceipt:
    """A receipt that was mailed, or was found mailed already."""

    mail_id: str
    order_id: str


# The address may be corrected between two deliveries; it is the same receipt all the same.
send_receipt = Operation(
    "send-receipt/v1",
    key=business_key("orderId"),
    result=SentReceipt,
    fingerprint=("orderId", "amount"),
    on_unknown_outcome="retry",
)


@send_receipt.effect
def send(order: ChargedOrder, key: IdempotencyKey) -> SentReceipt:
    """Mail the receipt through the provider."""
    mail_id = bound_provider().request(
        {"amount": str(order.amount), "email": order.email},
        reference=order.order_id,
        idempotency_key=key.record_id,
    )
    return SentReceipt(mail_id, order.order_id)


def handler(event: Any, context: LambdaContext) -> None:
    """Entry point of the function."""
    process_event(event, context, each=send, parse=ChargedOrder.from_detail)
