"""Typed values to JSON and back: event bodies, idempotency keys and stored results all pass through here.

A declared type is a dataclass, None, bool, int, float, str, Decimal, datetime, `X | None`, `list[X]` or
`dict[str, X]`. Decimals and datetimes travel as text. Names become camelCase: `order_id` is `orderId` in
JSON. Anything else is refused when it is declared, so that a result cannot turn out unstorable after the
effect.
"""

import math
import re
import types
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from shared.errors import DeclarationError, ShapeError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]
T = TypeVar("T")

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([Ee][+-]?[0-9]+)?")
_TEXT: dict[Any, Any] = {Decimal: Decimal, datetime: datetime.fromisoformat}
_WANTED = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "finite float",
    str: "str",
    Decimal: "finite Decimal of at most 38 digits, in JSON as text such as '10.00'",
    datetime: "datetime, in JSON as ISO 8601 text",
}
_ALLOWED = "a dataclass, None, bool, int, float, str, Decimal, datetime, X | None, list[X] or dict[str, X]"


def json_name(field_name: str) -> str:
    """Return the JSON name of a field: `order_id` becomes `orderId`."""
    head, *rest = field_name.split("_")
    return head + "".join(part.title() for part in rest)


def check_declared(declared: Any, where: str) -> None:
    """Refuse a type that JSON cannot carry. Raises DeclarationError naming the place and the type."""
    if declared is None or declared in _WANTED:
        return
    if _is_dataclass(declared):
        names = [json_name(field.name) for field in fields(declared)]
        if len(set(names)) != len(names) or not all(field.init for field in fields(declared)):
            raise DeclarationError(f"{where} has fields with init=False or equal JSON names; wanted neither")
        for name, inner in _hints(declared).items():
            check_declared(inner, f"{where}.{name}")
        return
    kind, inner = _container(declared)
    if kind is None:
        raise DeclarationError(f"{where} is declared as {declared!r}; wanted {_ALLOWED}")
    check_declared(inner, where)


def to_json(declared: Any, value: Any, where: str) -> JsonValue:
    """Turn a value of a declared type into JSON. Raises ShapeError naming the place, never the value."""
    return cast("JsonValue", _convert(declared, value, where, load=False))


def from_json(declared: type[T], value: JsonValue, where: str) -> T:
    """Build a value of a declared type; unknown fields are ignored. Raises ShapeError, never the value."""
    return cast("T", _convert(declared, value, where, load=True))


def _convert(declared: Any, value: Any, where: str, *, load: bool) -> Any:
    if _is_dataclass(declared):
        return _loaded(declared, value, where) if load else _dumped(declared, value, where)
    kind, inner = _container(declared)
    if kind == "optional":
        return None if value is None else _convert(inner, value, where, load=load)
    if kind == "list":
        _expect(isinstance(value, list), where, "list", value)
        return [_convert(inner, item, f"{where}[{index}]", load=load) for index, item in enumerate(value)]
    if kind == "dict":
        keyed_by_text = isinstance(value, dict) and all(isinstance(name, str) for name in value)
        _expect(keyed_by_text, where, "object" if load else "dict with str keys", value)
        return {str.__str__(name): _convert(inner, item, f"{where}[...]", load=load) for name, item in value.items()}
    return _scalar(declared, _parsed(declared, value, where) if load and declared in _TEXT else value, where, load)


def _loaded(declared: Any, value: Any, where: str) -> Any:
    _expect(isinstance(value, dict), where, "object", value)
    found, hints = {}, _hints(declared)
    for field in fields(declared):
        key = json_name(field.name)
        if key in value:
            found[field.name] = _convert(hints[field.name], value[key], f"{where}.{key}", load=True)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ShapeError(f"{where}.{key} is missing; wanted it in every {where}")
    return declared(**found)


def _dumped(declared: Any, value: Any, where: str) -> JsonObject:
    _expect(isinstance(value, declared), where, declared.__name__, value)
    inner = _hints(declared).items()
    return {json_name(n): to_json(hint, getattr(value, n), f"{where}.{n}") for n, hint in inner}


def _parsed(declared: Any, value: Any, where: str) -> Any:
    """Parse a Decimal or datetime. Decimal() itself takes underscores, blanks and NaN."""
    try:
        if declared is datetime or _NUMBER.fullmatch(value):
            parsed = _TEXT[declared](value)
            if declared is datetime or _storable(parsed):
                return parsed
    except (TypeError, ValueError, ArithmeticError):
        pass
    raise _unexpected(where, _WANTED[declared], value)


def _storable(value: Decimal) -> bool:
    """Tell whether DynamoDB has such a number; nothing longer is a price, and a result must be storable up front."""
    return len(value.as_tuple().digits) <= 38 and abs(value.adjusted()) <= 125


def _scalar(declared: Any, value: Any, where: str, load: bool) -> Any:
    """Check a scalar; a subclass (an enum) comes out as the plain value."""
    declared = type(None) if declared is None else declared
    right = isinstance(value, declared) and (declared is bool or not isinstance(value, bool))
    if right and declared in (float, Decimal):
        right = math.isfinite(value) and (declared is float or _storable(value))
    _expect(right, where, _WANTED[declared], value)
    if declared in _TEXT and not load:
        return value.isoformat() if declared is datetime else str(value)
    if declared is str:
        return str.__str__(value)
    return declared(value) if declared in (int, float) else value


def _expect(right: bool, where: str, wanted: str, found: Any) -> None:
    if not right:
        raise _unexpected(where, wanted, found)


def _unexpected(where: str, wanted: str, found: Any) -> ShapeError:
    return ShapeError(f"{where} has a value of type {type(found).__name__}; wanted {wanted}")


def _is_dataclass(declared: Any) -> bool:
    return isinstance(declared, type) and is_dataclass(declared)


@cache
def _hints(declared: Any) -> dict[str, Any]:
    hints = get_type_hints(declared)
    return {field.name: hints[field.name] for field in fields(declared)}


def _container(declared: Any) -> tuple[str | None, Any]:
    """Return what holds the inner type ("optional", "list", "dict" or None) and the inner type."""
    origin, args = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType) and len(args) == 2 and type(None) in args:
        return "optional", args[0] if args[1] is type(None) else args[1]
    if origin is list:
        return "list", args[0]
    if origin is dict and args[0] is str:
        return "dict", args[1]
    return None, None
