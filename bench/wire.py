"""DynamoDB and S3 in dictionaries, answered at botocore's `before-send`: the SDK's own work stays, the network goes.

Knows what the measured handlers send and refuses the rest. Units are computed from sizes at the wire by the published
rules, not measured: a write costs one unit for each KiB begun of the larger of old and new item, at least 1, a refused
one costs as much by the item that refused it, and a write in a transaction costs double.
"""

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import botocore.handlers
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from bench.conditions import Condition, Item, updated

RECORDS, PAYMENTS = "records", "payments"
KIB = 1024
_SHAPE = "com.amazonaws.dynamodb.v20120810#"


@dataclass(frozen=True)
class Request:
    """One request at the wire, and the computed write units on each table it touched."""

    operation: str
    write_units: dict[str, int]


@dataclass
class Wire:
    """Answers every DynamoDB and S3 request of this process, after `latency` seconds of the request's table."""

    latency: dict[str, float] = field(default_factory=dict)
    items: dict[tuple[str, str], Item] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def install(self) -> "Wire":
        """Stand in front of every client that is made from now on."""
        botocore.handlers.BUILTIN_HANDLERS.append(("before-send.dynamodb", self._dynamodb))
        botocore.handlers.BUILTIN_HANDLERS.append(("before-send.s3", self._s3))
        return self

    def clear(self) -> None:
        """Forget items, objects and requests."""
        self.items.clear()
        self.objects.clear()
        self.requests.clear()

    def take(self) -> tuple[Counter[str], int]:
        """Return the requests since the last call that did not go to the provider, and their units on the records."""
        with self._lock:
            seen = [request for request in self.requests if PAYMENTS not in request.write_units]
            self.requests.clear()
        return Counter(one.operation for one in seen), sum(one.write_units.get(RECORDS, 0) for one in seen)

    def _dynamodb(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
        operation = event_name.rpartition(".")[2]
        body = json.loads(request.body)
        writes = [(operation, body)]
        if operation == "TransactWriteItems":
            writes = [(f"{kind}Item", one) for entry in body["TransactItems"] for kind, one in entry.items()]
        time.sleep(max(self.latency.get(one["TableName"], 0.0) for _, one in writes))
        with self._lock:
            old = [self.items.get((one["TableName"], _id(one))) for _, one in writes]
            refused = [not _allowed(one, item) for (_kind, one), item in zip(writes, old, strict=True)]
            answers = [{} if any(refused) else self._written(kind, one) for kind, one in writes]
            units: Counter[str] = Counter()
            for (_kind, one), item in zip(writes, old, strict=True):
                new = self.items.get((one["TableName"], _id(one)))
                units[one["TableName"]] += max(_units(item), _units(new)) * (1 if len(writes) == 1 else 2)
            self.requests.append(Request(operation, dict(units)))
        if not any(refused):
            return _response(request.url, 200, answers[0] if len(writes) == 1 else {})
        if len(writes) == 1:
            error = {"__type": f"{_SHAPE}ConditionalCheckFailedException", "Item": old[0] or {}}
            return _response(request.url, 400, error)
        reasons = [
            {"Code": "ConditionalCheckFailed", "Item": item or {}} if no else {"Code": "None"}
            for no, item in zip(refused, old, strict=True)
        ]
        cancelled = {"__type": f"{_SHAPE}TransactionCanceledException", "CancellationReasons": reasons}
        return _response(request.url, 400, cancelled)

    def _written(self, kind: str, body: Item) -> Item:
        place = body["TableName"], _id(body)
        old = self.items.get(place)
        if kind == "PutItem":
            self.items[place] = body["Item"]
            return {"Attributes": old} if old and body.get("ReturnValues") == "ALL_OLD" else {}
        if kind == "UpdateItem":
            self.items[place] = new = updated(body, old or dict(body["Key"]))
            return {"Attributes": new} if body.get("ReturnValues") == "ALL_NEW" else {}
        if kind == "DeleteItem":
            self.items.pop(place, None)
            return {}
        raise ValueError(f"the bench's wire got {kind}; wanted PutItem, UpdateItem or DeleteItem")

    def _s3(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
        name = request.url.partition("?")[0]
        operation = event_name.rpartition(".")[2]
        with self._lock:
            self.requests.append(Request(operation, {}))
            if operation == "PutObject":
                body = request.body
                self.objects[name] = body if isinstance(body, bytes) else body.read()
                return AWSResponse(request.url, 200, {"etag": '"bench"'}, _Raw(b""))
            found = self.objects[name]
        return AWSResponse(request.url, 200, {"content-length": str(len(found))}, _Raw(found))


def _id(body: Item) -> str:
    return str((body.get("Item") or body["Key"])["id"]["S"])


def _allowed(body: Item, item: Item | None) -> bool:
    return "ConditionExpression" not in body or Condition(body, item or {}).holds()


def _units(item: Item | None) -> int:
    size = sum(len(name) + sum(len(str(value)) for value in typed.values()) for name, typed in (item or {}).items())
    return max(1, -(-size // KIB))


def _response(url: str, status: int, body: Item) -> AWSResponse:
    headers = {"x-amzn-requestid": "bench", "content-type": "application/x-amz-json-1.0"}
    return AWSResponse(url, status, headers, _Raw(json.dumps(body).encode()))


class _Raw:
    """What botocore reads an answer from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self, *_: Any, **__: Any) -> Any:
        """Yield the body once."""
        yield self._data

    def read(self, *_: Any, **__: Any) -> bytes:
        """Return the body once, then nothing."""
        data, self._data = self._data, b""
        return data
