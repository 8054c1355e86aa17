"""The receipt as an operation that parks: for a mail provider that takes no key and a mail that must not repeat."""

from typing import Any

from send_receipt.handler import ChargedOrder, SentReceipt
from shared.events import process_event
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation
from shared.provider import bound_provider

operation = Operation("send-once/v1", key=business_key("orderId"), result=SentReceipt, on_unknown_outcome="park")


@operation.effect
def send(order: ChargedOrder, key: IdempotencyKey) -> SentReceipt:
    payload = {"amount": str(order.amount)}
    mail_id = bound_provider().request(payload, reference=order.order_id, idempotency_key=key.record_id)
    return SentReceipt(mail_id, order.order_id)


def handler(event: Any, context: Any) -> None:
    process_event(event, context, each=send, parse=ChargedOrder.from_detail)
