"""Typed values and message bodies: what is taken, unwrapped and refused."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from shared.body import is_s3_test_event, parse_json_object, unwrap
from shared.codec import check_declared, from_json, to_json
from shared.errors import DeclarationError, ShapeError


class Color(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


@dataclass
class Item:
    item_name: str
    price: Decimal | None = None
    tags: list[str] = field(default_factory=list)


def test_unknown_fields_are_ignored_and_defaults_are_filled() -> None:
    assert from_json(Item, {"itemName": "a", "more": 1}, "Item") == Item("a")


def test_a_subclass_of_a_scalar_comes_out_plain() -> None:
    for declared, value, plain in ((str, Color.RED, "red"), (int, Size.SMALL, 1)):
        stored = to_json(declared, value, "v")
        assert (stored, type(stored)) == (plain, type(plain))


@pytest.mark.parametrize(
    ("declared", "value", "found"),
    [
        (Item, [], "v has a value of type list; wanted object"),
        (Item, {}, "v.itemName is missing; wanted it in every v"),
        (Item, {"itemName": None}, "v.itemName has a value of type NoneType; wanted str"),
        (Item, {"itemName": "a", "tags": [1]}, "v.tags[0] has a value of type int; wanted str"),
        (Item, {"itemName": "a", "price": 1.5}, "v.price has a value of type float; wanted finite Decimal"),
        (Decimal, "NaN", "v has a value of type str; wanted finite Decimal"),
        (Decimal, " 1", "v has a value of type str; wanted finite Decimal"),
        (Decimal, "\u0661", "v has a value of type str; wanted finite Decimal"),
        (Decimal, "1e126", "v has a value of type str; wanted finite Decimal of at most 38 digits"),
        (Decimal, "9" * 39, "v has a value of type str; wanted finite Decimal of at most 38 digits"),
        (Decimal, "1e9999999999999999999", "v has a value of type str; wanted finite Decimal"),
        (datetime, "today", "v has a value of type str; wanted datetime"),
        (datetime, 5, "v has a value of type int; wanted datetime"),
        (int, True, "v has a value of type bool; wanted int"),
        (int, 1.0, "v has a value of type float; wanted int"),
        (bool, 1, "v has a value of type int; wanted bool"),
        (float, 1, "v has a value of type int; wanted finite float"),
        (float, float("inf"), "v has a value of type float; wanted finite float"),
        (type(None), 0, "v has a value of type int; wanted null"),
        (list[int], {}, "v has a value of type dict; wanted list"),
        (dict[str, int], [], "v has a value of type list; wanted object"),
        (dict[str, int], {"secret": "x"}, "v[...] has a value of type str; wanted int"),
    ],
)
def test_a_refused_value_is_named_by_its_place_and_type(declared: Any, value: Any, found: str) -> None:
    with pytest.raises(ShapeError) as caught:
        from_json(declared, value, "v")
    assert str(caught.value).startswith(found)


@pytest.mark.parametrize(
    ("declared", "value", "found"),
    [
        (Item, "x", "v has a value of type str; wanted Item"),
        (list[int], (1,), "v has a value of type tuple; wanted list"),
        (dict[str, int], {1: 1}, "v has a value of type dict; wanted dict with str keys"),
        (Decimal, Decimal("Infinity"), "v has a value of type Decimal; wanted finite Decimal"),
        (Decimal, 1, "v has a value of type int; wanted finite Decimal"),
        (datetime, "2026-01-05", "v has a value of type str; wanted datetime"),
    ],
)
def test_a_value_that_is_not_as_declared_is_refused(declared: Any, value: Any, found: str) -> None:
    with pytest.raises(ShapeError) as caught:
        to_json(declared, value, "v")
    assert str(caught.value).startswith(found)


def test_fields_that_the_constructor_or_json_cannot_tell_apart_are_refused() -> None:
    @dataclass
    class Hidden:
        number: int = field(init=False)

    @dataclass
    class Twice:
        order_id: int
        orderId: int  # noqa: N815 - the clash is the point

    for declared in (Hidden, Twice):
        with pytest.raises(DeclarationError, match="fields with init=False or equal JSON names; wanted neither"):
            check_declared(declared, "v")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "body is no JSON (Expecting value: line 1 column 1 (char 0)); wanted a JSON object"),
        ("{oops", "body is no JSON (Expecting property name"),
        ("null", "body is a JSON NoneType; wanted a JSON object"),
        ("[1]", "body is a JSON list; wanted a JSON object"),
        ('"text"', "body is a JSON str; wanted a JSON object"),
        ('{"a": NaN}', "body is no JSON (NaN is not standard)"),
        ('{"a": -Infinity}', "body is no JSON (-Infinity is not standard)"),
        ('{"a": 1, "a": 2}', "body is no JSON (duplicate names)"),
        ("[" * 100_000, "body is no JSON (nested too deeply)"),
        (None, "body is NoneType; wanted the text of a JSON object"),
        ({}, "body is dict; wanted the text of a JSON object"),
    ],
)
def test_a_refused_body_is_described_without_its_text(text: Any, found: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_json_object(text, "body")
    assert str(caught.value).startswith(found)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


SNS: dict[str, Any] = {"Type": "Notification", "TopicArn": "arn", "MessageId": "m", "Message": '{"a": 1}'}
EVENT: dict[str, Any] = {
    "version": "0",
    "id": "i",
    "detail-type": "t",
    "source": "s",
    "time": "now",
    "detail": {"a": 1},
}


def test_one_level_of_a_known_envelope_is_unwrapped() -> None:
    assert unwrap(dict(SNS)) == unwrap(dict(EVENT)) == unwrap({"a": 1}) == {"a": 1}
    inside = {**SNS, "Message": '{"detail": 1}'}
    assert unwrap(inside) == {"detail": 1}
    bare: dict[str, Any] = {"Type": "Notification", "Message": "x"}
    assert unwrap(bare) == bare


def test_a_broken_envelope_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"^SNS Message is no JSON"):
        unwrap({**SNS, "Message": "plain text"})
    with pytest.raises(ShapeError, match=r"^EventBridge detail is str; wanted a JSON object"):
        unwrap({**EVENT, "detail": "text"})


def test_only_the_test_event_of_s3_is_one() -> None:
    assert is_s3_test_event({"Service": "Amazon S3", "Event": "s3:TestEvent"})
    assert not is_s3_test_event({"Event": "s3:TestEvent"})
    assert not is_s3_test_event({"Service": "Amazon S3"})
    assert not is_s3_test_event({"Service": "Amazon S3", "Event": "s3:TestEvent", "orderId": "o-1", "amount": "1"})
