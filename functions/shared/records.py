"""The idempotency record: Powertools' DynamoDB layer with an owner (fence), a lease and a format.

What it adds to the stock layer, by fact number: completion and release conditional on the owner (3.3, 3.4), a
claim whose response was lost is recognised as one's own (6.11), takeovers are seen and refused for another
payload, epoch arithmetic only (3.15), state of one attempt is never shared with another (3.1).
"""

import json
import re
import time
import uuid
from collections.abc import Callable
from copy import copy
from typing import Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyItemAlreadyExistsError
from aws_lambda_powertools.utilities.idempotency.persistence.datarecord import STATUS_CONSTANTS, DataRecord
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.exceptions import BotoCoreError, ClientError

from shared.errors import FenceLostError, RecordFormatError
from shared.settings import ClaimSettings

RECORD_FORMAT = 1
INPROGRESS = STATUS_CONSTANTS["INPROGRESS"]
COMPLETED = STATUS_CONSTANTS["COMPLETED"]
# Stock Powertools replays a stored 0, False, "", [] or {} as None (fact 3.9). A status it does not know makes
# it raise instead of answering wrong.
COMPLETED_FALSY = "COMPLETED_FALSY"
Item = dict[str, Any]
_OWNED = "#owner = :owner AND #status = :inprogress"


class OwnedRecords(DynamoDBPersistenceLayer):
    """Records of one operation; `for_attempt` gives each attempt its own view with a fresh owner token."""

    owner: str
    context: LambdaContext
    existing: DataRecord | None
    taken_over: bool
    release_lost: bool
    release_error: Exception | None

    def __init__(self, operation: str, settings: ClaimSettings, client: Any) -> None:
        super().__init__(table_name=settings.table, boto3_client=client)
        self._margin_ms = settings.lease_margin_seconds * 1000
        self.config = IdempotencyConfig(
            event_key_jmespath="key",
            payload_validation_jmespath="fingerprint",
            raise_on_no_idempotency_key=True,
            expires_after_seconds=settings.record_lifetime_seconds,
            hash_function="sha256",
        )
        self.configure(config=self.config, key_prefix=operation)

    def for_attempt(self, context: LambdaContext) -> "OwnedRecords":
        """Return a view for one attempt; its token is made now, as SnapStart clones init (fact 5.8)."""
        attempt = copy(self)
        attempt.owner = uuid.uuid4().hex
        attempt.context = context
        attempt.config = copy(self.config)
        attempt.config.register_lambda_context(context)
        attempt.existing = None
        attempt.taken_over = attempt.release_lost = False
        attempt.release_error = None
        return attempt

    def _get_expiry_timestamp(self) -> int:
        return int(time.time()) + self.expires_after_seconds

    def _validate_payload(self, data_payload: Any, stored_data_record: DataRecord) -> None:
        # A stock record written without payload validation has nothing to compare and is honoured.
        if stored_data_record.payload_hash:
            super()._validate_payload(data_payload, stored_data_record)

    def _item_to_data_record(self, item: Item) -> DataRecord:
        found = int(item.get("format", {"N": "0"})["N"])
        status = item.get("status", {}).get("S")
        if found > RECORD_FORMAT or status not in (INPROGRESS, COMPLETED, COMPLETED_FALSY):
            raise RecordFormatError(
                f"record {item['id']['S']} has format {found} and status {status}; wanted format "
                f"{RECORD_FORMAT} or lower and a known status: deploy the version that wrote it"
            )
        if status == COMPLETED_FALSY:
            item = {**item, "status": {"S": COMPLETED}}
        self.existing = super()._item_to_data_record(item)
        return self.existing

    def _put_record(self, data_record: DataRecord) -> None:
        """Claim: one conditional PutItem."""
        now_ms = int(time.time() * 1000)
        lease_ms = now_ms + self.context.get_remaining_time_in_millis() + self._margin_ms
        # A record lifetime shorter than the run would let a second copy in while the first runs (fact 3.5).
        expiry = max(self._get_expiry_timestamp(), lease_ms // 1000 + 1)
        item = {
            "id": {"S": data_record.idempotency_key},
            "status": {"S": INPROGRESS},
            "expiration": {"N": str(expiry)},
            "in_progress_expiration": {"N": str(lease_ms)},
            "validation": {"S": data_record.payload_hash},
            "owner": {"S": self.owner},
            "format": {"N": str(RECORD_FORMAT)},
        }
        replaced, refused_by = self._write(
            self.client.put_item,
            condition="attribute_not_exists(#id) OR #expiration < :now OR ("
            "#status = :inprogress AND #in_progress_expiration < :now_ms"
            " AND (attribute_not_exists(#validation) OR #validation = :validation)"
            " AND (attribute_not_exists(#format) OR #format <= :format))",
            values={
                ":now": {"N": str(now_ms // 1000)},
                ":now_ms": {"N": str(now_ms)},
                ":validation": item["validation"],
                ":format": item["format"],
            },
            Item=item,
            ReturnValues="ALL_OLD",
        )
        if replaced is not None:
            self.taken_over = replaced.get("status", {}).get("S") == INPROGRESS
        elif refused_by is None:  # removed in between: Powertools reads again
            raise IdempotencyItemAlreadyExistsError
        elif not self._owns(refused_by):
            existing = self._item_to_data_record(refused_by)
            self._validate_payload(data_record, existing)
            raise IdempotencyItemAlreadyExistsError(old_data_record=existing)
        # Our own record: the first request was applied, its response lost, and the SDK's retry met it. What
        # it replaced is not known any more, so a takeover goes uncounted here.

    def _update_record(self, data_record: DataRecord) -> None:
        """Complete: one UpdateItem, only while this attempt owns the record. Raises FenceLostError."""
        falsy = not json.loads(data_record.response_data) and data_record.response_data != "null"
        written, refused_by = self._write(
            self.client.update_item,
            condition=_OWNED,
            update="SET #data = :data, #expiration = :expiration, #status = :completed",
            values={
                ":data": {"S": data_record.response_data},
                ":expiration": {"N": str(data_record.expiry_timestamp)},
                ":completed": {"S": COMPLETED_FALSY if falsy else COMPLETED},
                ":owner": {"S": self.owner},
            },
            Key=self._get_key(data_record.idempotency_key),
        )
        # Refused by our own completed record: only the first response was lost.
        if written is None and not (refused_by is not None and self._owns(refused_by)):
            raise FenceLostError(
                f"record {data_record.idempotency_key} belongs to "
                f"{'nobody' if refused_by is None else 'another attempt'}; wanted this attempt's owner "
                "token: the "
                "result was not stored, the next delivery decides"
            )

    def _delete_record(self, data_record: DataRecord) -> None:
        """Release: one DeleteItem, only while this attempt owns the record.

        Never raises for the store's sake, so that the error of the effect is not masked (fact 2, cleanup
        row).
        """
        try:
            _, refused_by = self._write(
                self.client.delete_item,
                condition=_OWNED,
                values={":owner": {"S": self.owner}},
                Key=self._get_key(data_record.idempotency_key),
            )
        except (ClientError, BotoCoreError) as error:
            self.release_error = error
        else:
            self.release_lost = refused_by is not None  # no record left is what was wanted

    def _owns(self, item: Item) -> bool:
        return bool(item.get("owner", {}).get("S") == self.owner)

    def _write(
        self, call: Callable[..., Any], *, condition: str, values: Item, update: str = "", **request: Any
    ) -> tuple[Item | None, Item | None]:
        """Write under a condition: (what was replaced, None), or (None, the item that refused, if any)."""
        if update:
            request["UpdateExpression"] = update
        try:
            answer = call(
                TableName=self.table_name,
                ConditionExpression=condition,
                ExpressionAttributeNames={f"#{name}": name for name in re.findall(r"#(\w+)", condition + update)},
                ExpressionAttributeValues={":inprogress": {"S": INPROGRESS}, **values},
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **request,
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            return None, refused.response.get("Item")
        return answer.get("Attributes", {}), None
