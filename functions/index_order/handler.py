"""Index an order: DynamoDB stream of Orders, search view guarded by version.

No claim and no lease: the version guard alone makes repeats and late records harmless, without a time limit.
Each version is applied at most once and the newest wins. An order that TTL removed leaves the view like one
that a person removed, since the view shows what Orders holds; the two are counted apart.
"""

from decimal import Decimal
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from index_order.search_view import SearchView, Written
from shared.aws import dynamodb
from shared.batch import BatchResponse
from shared.invocation import current_invocation
from shared.key import IdempotencyKey
from shared.once import Once
from shared.settings import index_settings
from shared.stream import Change, Image, process_stream

OPERATION = "index-order/v1"
_METRIC: dict[Written, str] = {
    "applied": "Applied",
    "already-applied": "AlreadyApplied",
    "older-ignored": "OlderIgnored",
}


def index(change: Change) -> None:
    """Bring one change of an order into the view."""
    if change.name == "REMOVE":
        order = change.require_old_image()
        written = search_view().remove(order)
        kind = "expired" if is_expired(change, index_settings().orders_ttl_attribute) else "removed"
        current_invocation().count(OPERATION, kind.title())
    else:
        order = change.require_new_image()
        written = search_view().put(order)
        kind = "stored"
    _report(order, kind, written)


def is_expired(change: Change, ttl_attribute: str | None) -> bool:
    """Tell a TTL delete from a user's: marked by the service, or past the orders' TTL attribute.

    Replicas of a global table see TTL deletes without the mark (C11). The time of the change is compared, not
    the time of this delivery: an order removed by a person just before its expiry stays a person's removal.
    """
    if change.by_service:
        return True
    expiry = (change.old_image or {}).get(ttl_attribute) if ttl_attribute else None
    return isinstance(expiry, Decimal) and 0 < expiry < change.created_at


@Once
def search_view() -> SearchView:
    """The view, connected once an environment."""
    settings = index_settings()
    return SearchView(settings.table, settings.tombstone_lifetime_seconds, dynamodb())


def handler(event: Any, context: LambdaContext) -> BatchResponse:
    """Entry point of the function."""
    return process_stream(event, context, operation=OPERATION, each=index)


def _report(order: Image, kind: str, written: Written) -> None:
    invocation = current_invocation()
    invocation.count(OPERATION, _METRIC[written])
    record_id = IdempotencyKey(OPERATION, (order["id"],)).record_id
    invocation.log(f"{OPERATION} {kind} {written}", OPERATION, outcome=written, record_id=record_id, change=kind)
