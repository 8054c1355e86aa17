"""An order written to an own table: record and business write in one transaction, in both forms.

The stand-in provider's table plays the own table; the write is unconditional: only the record prevents a second one.
"""

import os
import uuid
from typing import Any

from charge_order.handler import Order
from shared.batch import BatchResponse
from shared.commit import Commit, CommittedEffect, commit
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation
from shared.queue import process_queue


def place(order: Order, key: IdempotencyKey) -> Commit[str]:
    row = {"id": {"S": str(uuid.uuid4())}, "reference": {"S": order.order_id}, "answer": {"S": key.record_id}}
    return Commit(order.order_id, [{"Put": {"TableName": os.environ["PROVIDER_TARGET"], "Item": row}}])


def _placing(name: str, *, claim: bool) -> CommittedEffect[Order, str]:
    return commit(Operation(name, key=business_key("orderId"), result=str), claim=claim)(place)


committing = _placing("commit-order/v1", claim=False)
claiming = _placing("claim-order/v1", claim=True)


def commit_handler(event: Any, context: Any) -> BatchResponse:
    return process_queue(event, context, each=committing, parse=Order.from_body)


def claim_handler(event: Any, context: Any) -> BatchResponse:
    return process_queue(event, context, each=claiming, parse=Order.from_body)
