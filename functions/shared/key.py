"""Idempotency keys: built from business data, every part validated, no collisions between parts.

The key's text is `<operation>#<sha256>` over the canonical JSON list of its parts: the same text that stock
Powertools computes with `key_prefix`, `hash_function="sha256"` and a multi-select list of the same parts.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from shared.codec import JsonObject, JsonValue
from shared.errors import DeclarationError, KeyPartError

MAX_PART_BYTES = 255
_MAX_INT = 2**63 - 1
# Fields of envelopes and contexts that another delivery of the same event has differently.
_DELIVERY_BOUND = re.compile(
    r"((aws)?request|message|event|delivery|envelope)_?id|receipt_?handle|(event_?|sent_?)?time(stamp)?|trace_?(id|header)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class IdempotencyKey:
    """Names one operation instance. `record_id` (also `str(key)`) is safe to log and to send on."""

    operation: str
    parts: tuple[str | int, ...] = field(repr=False)

    @property
    def record_id(self) -> str:
        """`<operation>#<sha256 of the parts>`: the id of the record and the key a provider gets."""
        canonical = json.dumps(list(self.parts))
        return f"{self.operation}#{hashlib.sha256(canonical.encode()).hexdigest()}"

    def __str__(self) -> str:
        return self.record_id


@dataclass(frozen=True)
class KeyBuilder:
    """Takes the named fields of a payload, in order, as the parts of a key. `part_types` () takes any type."""

    names: tuple[str, ...]
    part_types: ClassVar[tuple[type, ...]] = (str, int)

    def build(self, operation: str, payload: Mapping[str, JsonValue]) -> IdempotencyKey:
        """Return the key of a payload. Raises KeyPartError naming the part, never its value."""
        return IdempotencyKey(operation, tuple(_part(name, payload) for name in self.names))

    def normalised(self, key: IdempotencyKey) -> JsonObject:
        """Return the fields of a key as it has them."""
        return dict(zip(self.names, key.parts, strict=True))

    def refuse_delivery(self, key: IdempotencyKey, *delivery: str | None) -> None:
        """Raise KeyPartError for a part that names the delivery: the next delivery of the event has another one."""
        for name, part in self.normalised(key).items():
            if part in delivery:
                raise KeyPartError(
                    f"key part {name} is the id of this delivery; wanted business data: a repeat has another"
                )


def business_key(*names: str) -> KeyBuilder:
    """Key of one or several business fields, by their JSON names: `business_key("tenantId", "orderId")`.

    Parts are str (NFC-normalised, trimmed, at most 255 bytes of UTF-8) or int; 0 is a value, "" is not.
    """
    if not names or len(set(names)) != len(names) or not all(names):
        raise DeclarationError(f"business_key{names!r}: wanted one or more different field names")
    if bound := [name for name in names if _DELIVERY_BOUND.fullmatch(name)]:
        raise DeclarationError(
            f"key part {bound[0]} names a delivery; wanted business data: a repeat has another value"
        )
    return KeyBuilder(names)


def _part(name: str, payload: Mapping[str, JsonValue]) -> str | int:
    if name not in payload:
        raise KeyPartError(f"key part {name} is missing; wanted it in every payload of the operation")
    found = payload[name]
    if isinstance(found, str):
        return _text_part(name, found)
    if isinstance(found, bool) or not isinstance(found, int):
        kind = "null" if found is None else type(found).__name__
        raise KeyPartError(f"key part {name} is {kind}; wanted str or int")
    if abs(found) > _MAX_INT:
        raise KeyPartError(f"key part {name} is an int of {found.bit_length()} bits; wanted at most 63: send text")
    return found


def _text_part(name: str, found: str) -> str:
    text = unicodedata.normalize("NFC", found).strip()
    if not text:
        raise KeyPartError(f"key part {name} is blank; wanted text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise KeyPartError(f"key part {name} is not valid Unicode; wanted text without lone surrogates") from None
    if size > MAX_PART_BYTES:
        raise KeyPartError(f"key part {name} is {size} bytes of UTF-8; wanted at most {MAX_PART_BYTES}")
    return text
