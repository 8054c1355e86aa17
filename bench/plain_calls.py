"""The limit: the three calls of each message on a plain client, ten threads, and nothing around them.

Same requests as a first delivery sends, same client settings, no keys built, nothing parsed, logged or counted. What is
left is the waiting and the SDK's own work, which no code on top of boto3 can avoid.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.wire import PAYMENTS, RECORDS

FREE = "attribute_not_exists(#id) OR #expiration < :now"
OWN = "#owner = :owner AND attribute_not_exists(#data)"
THREADS = ThreadPoolExecutor(10)
OWNER = {"S": "0" * 32}
SERVES = "attribute_not_exists(#failing) OR #failing = :false"
KEEPS_FIRST = (
    "SET #answer = if_not_exists(#answer, :answer), #reference = if_not_exists(#reference, :reference),"
    " #expiration = if_not_exists(#expiration, :expiration) ADD #calls :one"
)


def charge_all(client: Any, order_ids: Sequence[str]) -> None:
    """Claim, charge and complete each order, all at once."""
    for done in [THREADS.submit(_charge, client, order_id) for order_id in order_ids]:
        done.result()


def _charge(client: Any, order_id: str) -> None:
    claim(client, order_id)
    _provide(client, order_id)
    complete(client, order_id)


def claim(client: Any, order_id: str) -> None:
    """Send the claim of an order."""
    now = int(time.time())
    started = {"N": str(now)}
    client.put_item(
        TableName=RECORDS,
        Item={
            "id": {"S": _record_id(order_id)},
            "status": {"S": "INPROGRESS"},
            "expiration": _later(),
            "in_progress_expiration": {"N": str(now * 1000 + 15_000)},
            "validation": {"S": "0" * 64},
            "owner": OWNER,
            "started": started,
            "format": {"N": "1"},
        },
        ConditionExpression=FREE,
        ExpressionAttributeNames=_names("id", "expiration"),
        ExpressionAttributeValues={":now": started},
        ReturnValuesOnConditionCheckFailure="ALL_OLD",
    )


def complete(client: Any, order_id: str) -> None:
    """Send the completion of an order."""
    client.update_item(
        TableName=RECORDS,
        Key={"id": {"S": _record_id(order_id)}},
        UpdateExpression="SET #status = :new_status, #data = :new_data, #expiration = :new_expiration",
        ConditionExpression=OWN,
        ExpressionAttributeNames=_names("data", "expiration", "status", "owner"),
        ExpressionAttributeValues={
            ":new_data": {"S": "0" * 100},
            ":new_expiration": _later(),
            ":new_status": {"S": "COMPLETED"},
            ":owner": OWNER,
        },
        ReturnValuesOnConditionCheckFailure="ALL_OLD",
    )


def _provide(client: Any, order_id: str) -> None:
    client.update_item(
        TableName=PAYMENTS,
        Key={"id": {"S": _record_id(order_id)}},
        UpdateExpression=KEEPS_FIRST,
        ConditionExpression=SERVES,
        ExpressionAttributeNames=_names("answer", "reference", "expiration", "calls", "failing"),
        ExpressionAttributeValues={
            ":answer": {"S": "0" * 40},
            ":reference": {"S": order_id},
            ":expiration": _later(),
            ":one": {"N": "1"},
            ":false": {"BOOL": False},
        },
        ReturnValues="ALL_NEW",
        ReturnValuesOnConditionCheckFailure="ALL_OLD",
    )


def _record_id(order_id: str) -> str:
    return f"charge-order/v1#{order_id:0>64}"


def _later() -> dict[str, str]:
    return {"N": str(int(time.time()) + 864_000)}


def _names(*names: str) -> dict[str, str]:
    return {f"#{name}": name for name in names}
