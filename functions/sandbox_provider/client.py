"""The stand-in provider: one call is one request, effects and calls are told apart.

One item is one effect: it has an `answer`. Keyed, a request is one UpdateItem that keeps the first answer and
adds 1 to `calls`; keyless, it is one PutItem under a fresh id. An item set up beforehand with `delay_seconds`
or `failing` makes the provider slow or unavailable for that key (see `sandbox_provider.control`).
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from shared.aws import dynamodb
from shared.codec import JsonObject, JsonValue
from shared.provider import ProviderUnavailableError
from shared.settings import ProviderSettings

# A keyless effect stays visible for this long; nobody asks for it by key.
KEYLESS_KEPT_SECONDS = 30 * 86_400


class SandboxProvider:
    """Behaves like a payment or mail API over one table. Needs UpdateItem and PutItem on it, nothing else."""

    def __init__(self, settings: ProviderSettings) -> None:
        self._table = settings.target
        self._key_lifetime = settings.key_lifetime_seconds
        self._call_timeout = settings.call_timeout_seconds

    def request(self, payload: Mapping[str, JsonValue], *, reference: str, idempotency_key: str | None) -> JsonObject:
        """See `Provider.request`; the payload must be JSON, as for a real API, and is not kept."""
        json.dumps(dict(payload), allow_nan=False)
        answer = json.dumps({"id": f"sandbox-{uuid.uuid4().hex}"})
        if idempotency_key is None:
            return self._keyless(reference, answer)
        return self._keyed(reference, answer, idempotency_key)

    def _keyless(self, reference: str, answer: str) -> JsonObject:
        item = self._effect(str(uuid.uuid4()), reference, answer, KEYLESS_KEPT_SECONDS)
        with _unavailable():
            dynamodb(1).put_item(TableName=self._table, Item=item)
        return _parsed(answer)

    def _keyed(self, reference: str, answer: str, key: str) -> JsonObject:
        now = int(time.time())
        client = dynamodb()
        try:
            with _unavailable():
                item = client.update_item(
                    TableName=self._table,
                    Key={"id": {"S": key}},
                    UpdateExpression=(
                        "SET #answer = if_not_exists(#answer, :answer)"
                        ", #reference = if_not_exists(#reference, :reference)"
                        ", #expiration = if_not_exists(#expiration, :expiration) ADD #calls :one"
                    ),
                    ConditionExpression=(
                        "(attribute_not_exists(#failing) OR #failing = :false)"
                        " AND (attribute_not_exists(#expiration) OR #expiration >= :now)"
                    ),
                    ExpressionAttributeNames={
                        f"#{name}": name for name in ("answer", "reference", "expiration", "calls", "failing")
                    },
                    ExpressionAttributeValues={
                        ":answer": {"S": answer},
                        ":reference": {"S": reference},
                        ":expiration": {"N": str(now + self._key_lifetime)},
                        ":now": {"N": str(now)},
                        ":one": {"N": "1"},
                        ":false": {"BOOL": False},
                    },
                    ReturnValues="ALL_NEW",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )["Attributes"]
        except client.exceptions.ConditionalCheckFailedException as refused:
            old = refused.response["Item"]
            if old.get("failing", {}).get("BOOL"):
                raise ProviderUnavailableError(
                    "the sandbox provider is set to fail for this key, and nothing happened; wanted an "
                    "answer: ask again"
                ) from None
            return self._forgotten(reference, answer, key, old)
        self._wait(item)
        return _parsed(item["answer"]["S"])

    def _forgotten(self, reference: str, answer: str, key: str, old: dict[str, Any]) -> JsonObject:
        """The key's lifetime is over (TTL may delete days later, fact 6.3): a second effect, its own item."""
        client = dynamodb()
        archived = {**old, "id": {"S": f"{key}@{old['expiration']['N']}"}}
        replacing = {
            "TableName": self._table,
            "Item": self._effect(key, reference, answer, self._key_lifetime),
            "ConditionExpression": "#expiration = :old",
            "ExpressionAttributeNames": {"#expiration": "expiration"},
            "ExpressionAttributeValues": {":old": old["expiration"]},
        }
        try:
            with _unavailable():
                client.transact_write_items(
                    TransactItems=[{"Put": {"TableName": self._table, "Item": archived}}, {"Put": replacing}]
                )
        except client.exceptions.TransactionCanceledException:
            raise ProviderUnavailableError(
                "another request with the same forgotten key was first; wanted to be alone: ask again"
            ) from None
        return _parsed(answer)

    def _effect(self, item_id: str, reference: str, answer: str, kept_seconds: int) -> dict[str, Any]:
        return {
            "id": {"S": item_id},
            "reference": {"S": reference},
            "answer": {"S": answer},
            "calls": {"N": "1"},
            "expiration": {"N": str(int(time.time()) + kept_seconds)},
        }

    def _wait(self, item: dict[str, Any]) -> None:
        """The effect has happened, its answer is late; beyond the call timeout there is no answer."""
        delay = float(item.get("delay_seconds", {"N": "0"})["N"])
        if delay > 0:
            time.sleep(min(delay, self._call_timeout))
        if delay > self._call_timeout:
            raise ProviderUnavailableError(
                f"the sandbox provider is set to answer after {delay} s for this key; wanted at most "
                f"{self._call_timeout} s"
            )


def connect(settings: ProviderSettings) -> SandboxProvider:
    """Factory for PROVIDER=`sandbox_provider.client:connect`; PROVIDER_TARGET is the table's name."""
    return SandboxProvider(settings)


@contextmanager
def _unavailable() -> Iterator[None]:
    """A table that does not answer is a provider that does not answer; refused conditions pass through."""
    try:
        yield
    except BotoCoreError as error:
        raise ProviderUnavailableError(
            f"the sandbox provider did not answer ({type(error).__name__}): ask again"
        ) from error
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in ("ConditionalCheckFailedException", "TransactionCanceledException"):
            raise
        raise ProviderUnavailableError(f"the sandbox provider's table answered {code}; wanted an answer") from error


def _parsed(answer: str) -> JsonObject:
    parsed: JsonObject = json.loads(answer)
    return parsed
