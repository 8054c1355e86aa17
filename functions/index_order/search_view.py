"""The search view: a copy of each order, guarded by its version, that late or repeated records cannot spoil.

A removed order leaves a tombstone `{id, version, removed, expiration}` for its lifetime, which must exceed
the retry horizon: a late older record finds the higher version and is ignored instead of bringing the order
back. An order that is created again under the same id therefore continues the version of the removed one.
"""

import time
from decimal import Decimal
from typing import Any, Literal

from boto3.dynamodb.types import TypeSerializer

from shared.errors import ShapeError
from shared.stream import Image

Written = Literal["applied", "already-applied", "older-ignored"]


class SearchView:
    """Writes the view table. Needs PutItem on it, nothing else."""

    def __init__(self, table: str, tombstone_lifetime_seconds: int, client: Any) -> None:
        self._table = table
        self._tombstone_lifetime = tombstone_lifetime_seconds
        self._client = client

    def put(self, order: Image) -> Written:
        """Store an order unless the view has this version or a newer one. Raises ShapeError."""
        version = _version(order)
        if "removed" in order:
            raise ShapeError(
                "order has an attribute 'removed'; wanted none, the view marks tombstones with it: rename it"
            )
        # The view's own TTL attribute: copied, it would delete a live order from the view without a
        # tombstone.
        item = {name: value for name, value in order.items() if name != "expiration"}
        return self._guarded_put(item, version, "attribute_not_exists(#id) OR #version < :version", {})

    def remove(self, order: Image) -> Written:
        """Replace an order of this version or an older one by a tombstone. Raises ShapeError."""
        version = _version(order)
        expiration = int(time.time()) + self._tombstone_lifetime
        tombstone = {"id": order.get("id"), "version": version, "removed": True, "expiration": expiration}
        return self._guarded_put(
            tombstone,
            version,
            "attribute_not_exists(#id) OR #version < :version"
            " OR (#version = :version AND attribute_not_exists(#removed))",
            {"#removed": "removed"},
        )

    def _guarded_put(self, item: Image, version: int, condition: str, names: dict[str, str]) -> Written:
        if not isinstance(item.get("id"), str):
            raise ShapeError(f"order has an id of type {type(item.get('id')).__name__}; wanted str")
        serialize = TypeSerializer().serialize
        try:
            self._client.put_item(
                TableName=self._table,
                Item={name: serialize(value) for name, value in item.items()},
                ConditionExpression=condition,
                ExpressionAttributeNames={"#id": "id", "#version": "version", **names},
                ExpressionAttributeValues={":version": {"N": str(version)}},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self._client.exceptions.ConditionalCheckFailedException as refused:
            stored = refused.response.get("Item", {}).get("version", {}).get("N")
            if stored is None:
                raise ShapeError("the view's item has no version; wanted one: remove what else wrote it") from None
            # Equal: a duplicate, or this very put whose response was lost (fact 6.11). Neither is a failure.
            return "already-applied" if int(stored) == version else "older-ignored"
        return "applied"


def _version(order: Image) -> int:
    found = order.get("version")
    if not isinstance(found, Decimal) or found != found.to_integral_value() or found < 1:
        kind = "missing" if found is None else f"of type {type(found).__name__}"
        raise ShapeError(
            f"order's version is {kind} or no whole number of at least 1; wanted N >= 1: correct its writer"
        )
    return int(found)
