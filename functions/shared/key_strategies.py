"""More ways to make a key than `business_key`. Optional.

Each takes the JSON names of input fields, as `business_key` does, and refuses a part by its name.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shared.codec import JsonObject, JsonValue
from shared.errors import KeyPartError
from shared.key import IdempotencyKey, KeyBuilder, business_key

_CLIENT_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def client_key(key: str, *, caller: str, route: str) -> KeyBuilder:
    """Key that a client chose, scoped by who calls and what is called: another caller's equal key is another key."""
    return _ClientKey(business_key(caller, route, key).names)


def stream_record_key(arn: str, shard: str, sequence: str) -> KeyBuilder:
    """Key of one record of a stream: it names a change, and every delivery of that change is the same."""
    return _StreamRecord(business_key(arn, shard, sequence).names)


def fingerprint_key(*names: str) -> KeyBuilder:
    """Key made of the content of fields of any type, for events without an id of their own; null is a value."""
    return _Fingerprint(business_key(*names).names)


@dataclass(frozen=True)
class _ClientKey(KeyBuilder):
    def build(self, operation: str, payload: Mapping[str, JsonValue]) -> IdempotencyKey:
        key = super().build(operation, payload)
        if not _CLIENT_KEY.fullmatch(str(payload[self.names[-1]])):
            raise KeyPartError(
                f"key part {self.names[-1]} has blanks or is no ASCII; wanted 1 to 255 visible characters"
            )
        return key


@dataclass(frozen=True)
class _StreamRecord(KeyBuilder):
    def refuse_delivery(self, key: IdempotencyKey, *delivery: str | None) -> None:
        """The sequence number names the change, not a delivery of it."""


@dataclass(frozen=True)
class _Fingerprint(KeyBuilder):
    part_types: ClassVar[tuple[type, ...]] = ()

    def build(self, operation: str, payload: Mapping[str, JsonValue]) -> IdempotencyKey:
        if missing := [name for name in self.names if name not in payload]:
            raise KeyPartError(f"key part {missing[0]} is missing; wanted it in every payload of the operation")
        content = json.dumps([payload[name] for name in self.names], sort_keys=True, allow_nan=False)
        return IdempotencyKey(operation, (hashlib.sha256(content.encode()).hexdigest(),))

    def normalised(self, key: IdempotencyKey) -> JsonObject:  # noqa: ARG002 - its one part is no field
        return {}
