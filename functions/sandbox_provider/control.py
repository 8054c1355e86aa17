"""Set up the stand-in provider and read what it did: for tests, the lab and a check of a deployed sandbox.

Functions never import this; it needs UpdateItem and Scan on the provider's table.
"""

from collections import Counter
from typing import Any


def set_delay(client: Any, table: str, key: str, seconds: float) -> None:
    """Make answers for a key late by `seconds`; 0 ends it."""
    _set(client, table, key, "delay_seconds", {"N": str(seconds)})


def set_failing(client: Any, table: str, key: str, failing: bool) -> None:
    """Make the provider unavailable for a key, without effects, until it is set back to False."""
    _set(client, table, key, "failing", {"BOOL": failing})


def effects(client: Any, table: str) -> dict[str, int]:
    """Count the effects (items with an answer) of each reference."""
    return dict(Counter(item["reference"]["S"] for item in _answered(client, table)))


def calls(client: Any, table: str) -> dict[str, int]:
    """Count the answered calls of each reference."""
    counted: Counter[str] = Counter()
    for item in _answered(client, table):
        counted[item["reference"]["S"]] += int(item["calls"]["N"])
    return dict(counted)


def _answered(client: Any, table: str) -> list[dict[str, Any]]:
    pages = client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return [item for page in pages for item in page["Items"] if "answer" in item]


def _set(client: Any, table: str, key: str, name: str, value: dict[str, Any]) -> None:
    client.update_item(
        TableName=table,
        Key={"id": {"S": key}},
        UpdateExpression="SET #name = :value",
        ExpressionAttributeNames={"#name": name},
        ExpressionAttributeValues={":value": value},
    )
