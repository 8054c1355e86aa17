"""Idempotency keys: which parts are taken, which are refused, and a known answer."""

import hashlib
import json
from typing import Any

import pytest

from shared.errors import DeclarationError, KeyPartError
from shared.key import IdempotencyKey, business_key


def test_the_text_of_a_key_is_a_known_answer() -> None:
    key = business_key("orderId").build("charge-order/v1", {"orderId": "o-1", "amount": "10.00"})
    assert str(key) == key.record_id == "charge-order/v1#" + hashlib.sha256(b'["o-1"]').hexdigest()
    assert "o-1" not in repr(key)


def test_several_parts_keep_their_order_and_types() -> None:
    payload: dict[str, Any] = {"tenantId": 1, "orderId": " o-1 "}
    assert business_key("tenantId", "orderId").build("x/v1", payload).parts == (1, "o-1")
    assert business_key("tenantId").build("x/v1", {"tenantId": 0}).parts == (0,)
    assert IdempotencyKey("x/v1", (1,)) != IdempotencyKey("x/v1", ("1",))
    assert IdempotencyKey("x/v1", (1,)).record_id != IdempotencyKey("x/v1", ("1",)).record_id


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, "key part orderId is null; wanted str or int"),
        ("", "key part orderId is blank; wanted text"),
        (" \t\n\u00a0", "key part orderId is blank; wanted text"),
        (True, "key part orderId is bool; wanted str or int"),
        (1.0, "key part orderId is float; wanted str or int"),
        (["a"], "key part orderId is list; wanted str or int"),
        ({}, "key part orderId is dict; wanted str or int"),
        ("\U0001f600" * 64, "key part orderId is 256 bytes of UTF-8; wanted at most 255"),
        (2**63, "key part orderId is an int of 64 bits; wanted at most 63: send text"),
        ("\ud800", "key part orderId is not valid Unicode; wanted text without lone surrogates"),
    ],
)
def test_a_refused_part_is_named_without_its_value(value: Any, found: str) -> None:
    with pytest.raises(KeyPartError) as caught:
        business_key("tenantId", "orderId").build("x/v1", {"tenantId": "t", "orderId": value})
    assert str(caught.value) == found


def test_a_missing_part_is_named() -> None:
    with pytest.raises(KeyPartError, match=r"^key part orderId is missing; wanted it in every payload"):
        business_key("tenantId", "orderId").build("x/v1", {"tenantId": "t"})


def test_the_longest_part_is_taken() -> None:
    assert business_key("orderId").build("x/v1", {"orderId": "a" * 255}).parts == ("a" * 255,)


@pytest.mark.parametrize("names", [(), ("a", "a"), ("",)])
def test_a_builder_needs_different_names(names: tuple[str, ...]) -> None:
    with pytest.raises(DeclarationError, match="wanted one or more different field names"):
        business_key(*names)


def test_the_canonical_list_is_json() -> None:
    parts = ('a","b', 'c\\"')
    digest = IdempotencyKey("x/v1", parts).record_id.partition("#")[2]
    assert digest == hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()
