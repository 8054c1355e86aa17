"""The idempotency record: Powertools' DynamoDB layer with an owner (fence), a lease and a format.

What it adds to the stock layer, by fact number: every write after the claim is conditional on the owner (3.3, 3.4), a
write whose response was lost is recognised as one's own (6.11), takeovers are decided on what the record says, epoch
arithmetic only (3.15), state of one attempt is never shared with another (3.1). Statuses that stock Powertools does
not know make it raise instead of running an effect again or answering wrong (fact 3.9).
"""

import json
import re
import time
import uuid
from collections.abc import Callable
from copy import copy
from typing import Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig
from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import STATUS_CONSTANTS, DataRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from shared.declaration import ResultStore
from shared.errors import FenceLostError
from shared.settings import ClaimSettings

RECORD_FORMAT = 1
INPROGRESS = STATUS_CONSTANTS["INPROGRESS"]
STARTED = "STARTED"  # claimed by an effect that must not repeat: never taken over, never expires
PARKED = "PARKED"
OPEN = (INPROGRESS, STARTED, PARKED)
COMPLETED = STATUS_CONSTANTS["COMPLETED"]
COMPLETED_FALSY = "COMPLETED_FALSY"  # stock Powertools would replay 0, False, "", [] and {} as None
COMPLETED_APART = "COMPLETED_APART"  # the data only says where the result is
FAILED = "FAILED"  # a permanent failure, remembered
DONE = (COMPLETED, COMPLETED_FALSY, COMPLETED_APART, FAILED)
Item = dict[str, Any]
# The fence: the record is this attempt's own, and no outcome was stored yet.
_OWN = "#owner = :owner AND attribute_not_exists(#data)"
_LONGEST_RUN_SECONDS = 900


class OwnedRecords(DynamoDBPersistenceLayer):
    """Records of one operation; `for_attempt` gives each attempt its own view with a fresh owner token.

    `met` is the record that refused the claim, `{}` when it was gone a moment later, None when the claim was made.
    `send` makes a request (name of the client's method, its arguments).
    """

    record_id: str
    validation: str
    owner: str
    met: Item | None
    taken_over: bool
    context: LambdaContext
    send: Callable[[str, Item], Any]
    _apart: ResultStore | None
    _claimed: str

    def __init__(self, operation: str, settings: ClaimSettings, key_lifetime_seconds: int, client: Any) -> None:
        super().__init__(table_name=settings.table, boto3_client=client)
        self._margin_ms = settings.lease_margin_seconds * 1000
        self._key_lifetime = key_lifetime_seconds
        config = IdempotencyConfig(
            event_key_jmespath="key",
            payload_validation_jmespath="fingerprint",
            raise_on_no_idempotency_key=True,
            expires_after_seconds=settings.record_lifetime_seconds,
            hash_function="sha256",
        )
        self.configure(config=config, key_prefix=operation)

    def for_attempt(self, context: LambdaContext, data: Any, parks: bool, apart: ResultStore | None) -> "OwnedRecords":
        """Return a view for one attempt; its token is made now, as SnapStart clones init (fact 5.8)."""
        attempt = copy(self)
        attempt.owner = uuid.uuid4().hex
        attempt.met, attempt.taken_over = None, False
        attempt.context, attempt._apart = context, apart
        attempt.validation = self._get_hashed_payload(data)
        attempt.send = lambda method, request: getattr(self.client, method)(**request)
        attempt._claimed = STARTED if parks else INPROGRESS
        return attempt

    def _get_expiry_timestamp(self) -> int:
        return int(time.time()) + self.expires_after_seconds

    def _put_record(self, data_record: DataRecord) -> None:
        """Claim: one conditional PutItem."""
        self.record_id = data_record.idempotency_key
        now = {"N": str(int(time.time()))}
        about = {"validation": {"S": self.validation}, "started": now, "format": {"N": str(RECORD_FORMAT)}}
        item = {**self._get_key(self.record_id), **self._lease(), **about}
        self.met = self._write("put_item", "attribute_not_exists(#id) OR #expiration < :now", {":now": now}, Item=item)

    def _lease(self) -> Item:
        ends_ms = int(time.time() * 1000) + self.context.get_remaining_time_in_millis() + self._margin_ms
        # A record lifetime shorter than the run would let a second copy in while the first runs (fact 3.5).
        expiration = {"expiration": {"N": str(max(self._get_expiry_timestamp(), ends_ms // 1000 + 1))}}
        return {
            "status": {"S": self._claimed},
            "owner": {"S": self.owner},
            "in_progress_expiration": {"N": str(ends_ms)},
            **(expiration if self._claimed == INPROGRESS else {}),
        }

    def must_park(self, met: Item) -> bool:
        """Tell whether an outcome is unknown for good: a repeat is not harmless, or not any more."""
        forgotten = time.time() + self.context.get_remaining_time_in_millis() / 1000 - self._key_lifetime
        outlived = self._key_lifetime > 0 and _started(met) < forgotten
        return STARTED in (self._claimed, met["status"]["S"]) or outlived

    def take_over(self, met: Item) -> Item | None:
        """Claim a record whose lease ran out, as it was met. Returns what refused it, if anything."""
        refused_by = self._unless_changed(met, {**self._lease(), "started": {"N": str(_started(met))}})
        self.taken_over = refused_by is None
        return refused_by

    def park(self, met: Item) -> None:
        """Keep a record whose lease ran out, without expiry, until a person resolves it."""
        self._unless_changed(met, {"status": {"S": PARKED}})

    def settle(self, status: str, data: str | None = None) -> None:
        """Store how this attempt ended; without data the record stays for ever. Raises FenceLostError."""
        self._own(self._update(_OWN, {":owner": {"S": self.owner}}, self.outcome(status, data)))

    def outcome(self, status: str, data: str | None) -> Item:
        """Return the attributes that store an outcome; a large result goes to its own store."""
        if data is None:
            return {"status": {"S": status}}
        if status == COMPLETED and self._apart is not None and len(data) > self._apart.inline_bytes:
            status, data = COMPLETED_APART, self._apart.keep(self.record_id, self.owner, data)
        elif status == COMPLETED and data != "null" and not json.loads(data):
            status = COMPLETED_FALSY
        expiration = {"N": str(self._get_expiry_timestamp())}
        return {"status": {"S": status}, "data": {"S": data}, "expiration": expiration}

    def _update_record(self, data_record: DataRecord) -> None:
        """Complete: one UpdateItem. Raises FenceLostError."""
        self.settle(COMPLETED, data_record.response_data)

    def _delete_record(self, data_record: DataRecord) -> None:
        """Release: one DeleteItem; no record left is what was wanted. Raises FenceLostError."""
        values = {":owner": {"S": self.owner}}
        self._own(self._write("delete_item", _OWN, values, Key=self._get_key(data_record.idempotency_key)) or None)

    def _own(self, refused_by: Item | None) -> None:
        if refused_by is not None:
            raise FenceLostError(
                f"record {self.record_id} belongs to {'another attempt' if refused_by else 'nobody'}; wanted this "
                "attempt's owner token: the result was not stored, the next delivery decides"
            )

    def _unless_changed(self, met: Item, changes: Item) -> Item | None:
        condition = "#status = :status AND #in_progress_expiration = :lease"
        return self._update(condition, {":status": met["status"], ":lease": met["in_progress_expiration"]}, changes)

    def _update(self, condition: str, values: Item, changes: Item) -> Item | None:
        update = "SET " + ", ".join(f"#{name} = :new_{name}" for name in changes)
        if "expiration" not in changes:
            update += " REMOVE #expiration"
        values = {**values, **{f":new_{name}": value for name, value in changes.items()}}
        return self._write("update_item", condition, values, update, Key=self._get_key(self.record_id))

    def _write(self, method: str, condition: str, values: Item, update: str = "", **request: Any) -> Item | None:
        """Write under a condition. Returns the record that refused it, `{}` for none, None when it was written."""
        if update:
            request["UpdateExpression"] = update
        request |= {
            "TableName": self.table_name,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {f"#{name}": name for name in re.findall(r"#(\w+)", condition + update)},
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            self.send(method, request)
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            met: Item = refused.response.get("Item", {})
            # Refused by our own token: the request was applied, its response lost, and the SDK sent it again.
            return None if met.get("owner") == {"S": self.owner} else met
        return None


def _started(met: Item) -> int:
    """When the operation was first claimed, in epoch seconds; records of stock code tell when at the earliest."""
    at_the_earliest = int(met["in_progress_expiration"]["N"]) // 1000 - _LONGEST_RUN_SECONDS
    return int(met.get("started", {"N": at_the_earliest})["N"])
