"""Properties over generated values: keys never collide, results come back as they were."""

import json
import string
import unicodedata
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shared.codec import _storable, from_json, json_name, to_json
from shared.errors import KeyPartError
from shared.invocation import invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation

settings.register_profile("functions", deadline=None, derandomize=True, database=None)
settings.load_profile("functions")

part = st.text(max_size=20) | st.integers(-(2**63) + 1, 2**63 - 1) | st.sampled_from(['a","b', "[", "]", '"', "1", 1])


def built(parts: list[Any]) -> IdempotencyKey | None:
    names = [f"p{number}" for number in range(len(parts))]
    try:
        return business_key(*names).build("x/v1", dict(zip(names, parts, strict=True)))
    except KeyPartError:
        return None


def canonical(parts: list[Any]) -> list[Any]:
    return [unicodedata.normalize("NFC", p).strip() if isinstance(p, str) else p for p in parts]


@given(st.lists(part, min_size=1, max_size=4), st.lists(part, min_size=1, max_size=4))
def test_keys_are_equal_exactly_when_their_canonical_parts_are(left: list[Any], right: list[Any]) -> None:
    one, other = built(left), built(right)
    assume(one is not None and other is not None)
    same = [(type(p), p) for p in canonical(left)] == [(type(p), p) for p in canonical(right)]
    assert (one.record_id == other.record_id) == same  # type: ignore[union-attr]


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_text_cannot_move_from_one_part_to_the_next(a: str, b: str, c: str) -> None:
    one, other = built([a + b, c]), built([a, b + c])
    assume(one is not None and other is not None and canonical([a + b, c]) != canonical([a, b + c]))
    assert one.record_id != other.record_id  # type: ignore[union-attr]


@given(st.none() | st.booleans() | st.floats() | st.lists(st.integers()) | st.sampled_from(["", " ", "\u2003"]))
def test_what_names_nothing_is_always_refused(value: Any) -> None:
    assert built(["t", value]) is None


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal


@dataclass(frozen=True)
class Everything:
    text: str
    number: int
    ratio: float
    flag: bool
    amount: Decimal
    at: datetime
    maybe: Decimal | None
    lines: list[Line]
    by_name: dict[str, list[int]]
    last_one: None = None
    tags: list[str] = field(default_factory=list)


decimals = st.decimals(allow_nan=False, allow_infinity=False).filter(_storable)
zones = st.none() | st.builds(lambda m: timezone(timedelta(minutes=m)), st.integers(-1439, 1439))
everything = st.builds(
    Everything,
    text=st.text(),
    number=st.integers(),
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    amount=decimals,
    at=st.datetimes(timezones=zones),
    maybe=st.none() | decimals,
    lines=st.lists(st.builds(Line, sku=st.text(), price=decimals), max_size=3),
    by_name=st.dictionaries(st.text(), st.lists(st.integers(), max_size=2), max_size=3),
    tags=st.lists(st.text(), max_size=2),
)


@given(everything)
def test_a_value_comes_back_equal_through_json_text(value: Everything) -> None:
    stored = json.loads(json.dumps(to_json(Everything, value, "v"), sort_keys=True, allow_nan=False))
    back = from_json(Everything, stored, "v")
    assert back == value
    assert (str(back.amount), back.at.utcoffset()) == (str(value.amount), value.at.utcoffset())


scalars: list[Any] = [
    (int, st.integers()),
    (str, st.text()),
    (bool, st.booleans()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (Decimal, decimals),
    (list[int], st.lists(st.integers(), max_size=2)),
    (dict[str, bool], st.dictionaries(st.text(), st.booleans(), max_size=2)),
    (Everything, everything),
    (int | None, st.none() | st.integers(-1, 1)),
]


@dataclass(frozen=True)
class Order:
    order_id: int


_numbers = iter(range(10**6))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(scalars).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1])))
def test_a_replay_equals_the_first_result(context: Any, drawn: tuple[Any, Any]) -> None:
    declared, value = drawn

    def run(order: Order, key: IdempotencyKey) -> Any:
        return value

    run.__annotations__["return"] = declared
    effect = Operation("replay/v1", key=business_key("orderId"), result=declared).effect(run)
    order = Order(next(_numbers))
    with invocation(context):
        first, replayed = effect(order), effect(order)
    assert first == replayed == value
    assert type(replayed) is type(value)


@given(st.text(string.ascii_lowercase + "_", min_size=1).filter(lambda name: name.isidentifier()))
def test_json_names_are_stable(name: str) -> None:
    assert json_name(name) == json_name(name)
    assert "_" not in json_name(name)
