"""The stores behind the wire: `moto` in process, made from the template's tables and buckets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from boto3.dynamodb.types import TypeDeserializer
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.moto_api._internal import mock_random
from moto.s3.models import s3_backends

from retrylab.model import Model, Table

Item = dict[str, Any]

TOKEN_LIFETIME_NS = 600 * 1_000_000_000
"""How long DynamoDB knows a ClientRequestToken after the transaction completed (fact 6.8)."""


@dataclass(frozen=True)
class _Transaction:
    """A completed transaction that a repeat with the same token must not apply again."""

    parameters: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    completed_ns: int


class Store:
    """DynamoDB and S3 of one run. `send` answers a request; `item` looks at the truth behind it."""

    def __init__(self, model: Model, region: str, seed: int, now_ns: Callable[[], int]) -> None:
        self._region = region
        self._now_ns = now_ns
        self._transactions: dict[str, _Transaction] = {}
        self._deserializer = TypeDeserializer()
        self._stubber = BotocoreStubber()
        self._stubber.enabled = True
        self.tables = {table.name: table for table in model.tables.values()}
        self.buckets = {name: path for path, name in model.buckets.items()}
        dynamodb_backends.reset()
        s3_backends.reset()
        mock_random.seed(seed)
        for table in model.tables.values():
            self._create(table)
        for name in self.buckets:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(name, region)

    def _create(self, table: Table) -> None:
        keys = [{"AttributeName": table.hash_key, "KeyType": "HASH"}]
        if table.range_key:
            keys.append({"AttributeName": table.range_key, "KeyType": "RANGE"})
        stream = {"StreamEnabled": True, "StreamViewType": table.stream_view} if table.stream_view else None
        self._backend.create_table(
            table.name,
            schema=keys,
            throughput=None,
            attr=[{"AttributeName": name, "AttributeType": kind} for name, kind in table.attributes],
            global_indexes=None,
            indexes=None,
            streams=stream,
            billing_mode="PAY_PER_REQUEST",
            sse_specification=None,
            tags=[],
            deletion_protection_enabled=False,
            warm_throughput=None,
        )

    @property
    def _backend(self) -> Any:
        return dynamodb_backends[DEFAULT_ACCOUNT_ID][self._region]

    def send(self, request: AWSPreparedRequest, operation: str) -> AWSResponse:
        """Apply a signed request and give its answer, as the service would."""
        if operation == "TransactWriteItems":
            return self._transact(request)
        status, headers, body = self._stubber.process_request(request)
        return AWSResponse(request.url, status, headers, MockRawResponse(body))

    def _transact(self, request: AWSPreparedRequest) -> AWSResponse:
        """Honour the request's token, which moto ignores: a repeat answers as the first did (fact 6.8)."""
        parameters = request_body(request)
        token = str(parameters.pop("ClientRequestToken", ""))
        text = json.dumps(parameters, sort_keys=True)
        known = self._transactions.get(token)
        if known is not None and self._now_ns() - known.completed_ns <= TOKEN_LIFETIME_NS:
            if known.parameters != text:
                return error_response(request, "IdempotentParameterMismatchException", 400)
            return AWSResponse(request.url, known.status, known.headers, MockRawResponse(known.body))
        status, headers, body = self._stubber.process_request(request)
        raw = body.encode() if isinstance(body, str) else body
        if token and status == 200:
            self._transactions[token] = _Transaction(text, status, headers, raw, self._now_ns())
        return AWSResponse(request.url, status, headers, MockRawResponse(raw))

    def item(self, table_name: str, key: Mapping[str, Any]) -> Item | None:
        """The item as stored, with plain Python values, or None."""
        table = self.tables[table_name]
        backend = self._backend.tables[table_name]
        range_value = DynamoType(key[table.range_key]) if table.range_key else None
        found = backend.get_item(DynamoType(key[table.hash_key]), range_value)
        return self.plain(found.to_json()["Attributes"]) if found is not None else None

    def items(self, table: Table) -> list[Item]:
        """Every item of a table, with plain Python values."""
        return [self.plain(item.to_json()["Attributes"]) for item in self._backend.tables[table.name].all_items()]

    def put(self, table: Table, item: Mapping[str, Any]) -> None:
        """Write an item, given in DynamoDB's typed form, from outside of any handler."""
        self._backend.put_item(table.name, dict(item))

    def delete(self, table: Table, key: Mapping[str, Any]) -> None:
        """Remove an item, given by its typed key, from outside of any handler."""
        self._backend.delete_item(table.name, dict(key))

    def stream_records(self, table: Table) -> list[dict[str, Any]]:
        """All records that the table's stream ever held, in order."""
        shard = self._backend.tables[table.name].stream_shard
        return [record.to_json() for record in shard.items] if shard else []

    def put_object(self, bucket: str, key: str, body: str) -> None:
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, key, body.encode())

    def objects(self, bucket: str) -> dict[str, str]:
        """Keys and bodies of a bucket's objects."""
        listed = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[bucket].keys
        return {name: key.value.decode() for name, key in sorted(listed.items())}

    def plain(self, attributes: Mapping[str, Any]) -> Item:
        return {name: self._deserializer.deserialize(value) for name, value in attributes.items()}


def touched_items(operation: str, body: Mapping[str, Any], tables: Mapping[str, Table]) -> list[tuple[str, Item]]:
    """The (table name, typed key) pairs that a DynamoDB request reads or writes."""
    if operation == "TransactWriteItems":
        parts = [next(iter(action.values())) for action in body["TransactItems"]]
    else:
        parts = [body]
    found = []
    for part in parts:
        table = tables.get(part.get("TableName", ""))
        source = part.get("Key") or part.get("Item")
        if table is None or source is None:
            continue
        names = [table.hash_key] + ([table.range_key] if table.range_key else [])
        found.append((table.name, {name: source[name] for name in names if name in source}))
    return found


def error_response(request: AWSPreparedRequest, code: str, status: int) -> AWSResponse:
    """A DynamoDB error answer."""
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "answered by the lab"})
    headers = {"x-amzn-requestid": "lab", "content-type": "application/x-amz-json-1.0"}
    return AWSResponse(request.url, status, headers, MockRawResponse(body))


def object_address(request: AWSPreparedRequest) -> tuple[str, str]:
    """Bucket and key of an S3 request, in either addressing style."""
    url = urlsplit(request.url)
    host, path = url.netloc, unquote(url.path).lstrip("/")
    if host.startswith("s3."):
        bucket, _, key = path.partition("/")
        return bucket, key
    return host.split(".s3.", 1)[0], path


def request_body(request: AWSPreparedRequest) -> dict[str, Any]:
    body = request.body
    text = body.decode() if isinstance(body, bytes) else body
    parsed = json.loads(text) if text else {}
    assert isinstance(parsed, dict)
    return parsed
