"""What an operation declares, checked when its module is imported. Everything here raises DeclarationError."""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, TypeAlias, cast, get_type_hints

from shared.codec import check_declared, json_name
from shared.errors import DeclarationError, LoggableError
from shared.key import IdempotencyKey, KeyBuilder

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*/v[1-9][0-9]*")
Errors: TypeAlias = tuple[type[Exception], ...]


class ResultStore(Protocol):
    """Keeps results of more than `inline_bytes` outside the record; see `shared.large_results`."""

    inline_bytes: int

    def keep(self, record_id: str, owner: str, data: str) -> str: ...
    def fetch(self, pointer: str) -> str: ...


class ResultCache(Protocol):
    """Keeps records with an outcome in the memory of the environment; see `shared.warm_cache`."""

    def get(self, record_id: str) -> dict[str, Any] | None: ...
    def put(self, record_id: str, item: dict[str, Any]) -> None: ...


def check_operation(name: str, result: Any, on_unknown_outcome: str, did_not_happen: Errors, permanent: Errors) -> None:
    """Check what `Operation` takes."""
    if not _NAME.fullmatch(name):
        raise DeclarationError(f"operation {name!r}: wanted a lower-case name with a version, as 'charge-order/v1'")
    if on_unknown_outcome not in ("retry", "park"):
        raise DeclarationError(f"{name}: on_unknown_outcome is {on_unknown_outcome!r}; wanted 'retry' or 'park'")
    if did_not_happen and on_unknown_outcome != "park":
        raise DeclarationError(f"{name}: did_not_happen is for 'park'; wanted none, 'retry' releases after every error")
    # Its message is stored and a replay makes it again from that alone.
    for kind in permanent:
        if not issubclass(kind, LoggableError) or kind.__init__ is not Exception.__init__:
            raise DeclarationError(
                f"{name}: permanent {kind.__name__} is no LoggableError(message); wanted one that is"
            )
    check_declared(result, f"{name} result")


def check_names(name: str, declared: type[Any], key: KeyBuilder, fingerprint: tuple[str, ...]) -> tuple[str, ...]:
    """Check that key and fingerprint name fields of the input; return all its JSON names."""
    hints = get_type_hints(declared)
    types = {json_name(field.name): hints[field.name] for field in fields(declared)}
    if unknown := {*key.names, *fingerprint} - types.keys():
        raise DeclarationError(f"{name}: {declared.__name__} has no {sorted(unknown)}; wanted some of {sorted(types)}")
    for part in key.names:
        if key.part_types and types[part] not in key.part_types:
            raise DeclarationError(f"{name}: key part {part} is {types[part]}; wanted str or int")
    return tuple(sorted(types))


def input_type(name: str, function: Callable[..., Any], result: Any) -> type[Any]:
    """Return the input type of an effect's signature, or refuse the signature. Raises DeclarationError."""
    wanted = "wanted a plain function (input: <dataclass>, key: IdempotencyKey) -> <the declared result>"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise DeclarationError(f"{name}: the effect is async or a generator; {wanted}")
    hints = get_type_hints(function)
    taken = [hints.get(parameter) for parameter in inspect.signature(function).parameters]
    if len(taken) != 2 or taken[1] is not IdempotencyKey or not is_dataclass(taken[0]):
        raise DeclarationError(f"{name}: the effect takes {taken}; {wanted}")
    returned = hints.get("return", Any)
    if returned != result and not (result is type(None) and returned is None):
        raise DeclarationError(f"{name}: the effect returns {returned}, declared is {result}; {wanted}")
    check_declared(taken[0], taken[0].__name__)  # type: ignore[union-attr]
    return cast("type[Any]", taken[0])
