"""Scenarios: what is sent, what goes wrong, what counts as an effect, and what must come of it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from retrylab.errors import LabError
from retrylab.lab import Lab

Item = Mapping[str, Any]
SOURCES = ("queue", "event", "stream")


def created(before: Item | None, after: Item | None) -> bool:
    """An effect is an item that was not there before."""
    return before is None and after is not None


def changed(before: Item | None, after: Item | None) -> bool:
    """An effect is any change of an item."""
    return before != after


@dataclass(frozen=True)
class Effect:
    """What counts as an effect, seen at the wire and not reported by the handler.

    table: where it shows. key: reads the business key from the item. counts: which changes count.
    """

    name: str
    table: str
    key: Callable[[Item], str]
    counts: Callable[[Item | None, Item | None], bool] = created


@dataclass(frozen=True)
class TwinCode:
    """The naive twin of a function: `handler` in `folder` takes the place of the code behind `function`."""

    function: str
    folder: Path
    handler: str


@dataclass(frozen=True)
class Expect:
    """What a run must come to. What is None is not checked.

    effects: how many per business key. ended: where each event ends, `completed` or the last parts of the path of a
    failure path. deliveries: how often each event is handed to the function.
    """

    effects: Mapping[str, int]
    ended: Mapping[str, str] | None = None
    deliveries: Mapping[str, int] | None = None
    calls: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Scenario:
    """One story. `play` sends events and injects faults; the lab then runs until nothing is left to happen."""

    name: str
    source: str
    injected: str
    effect: Effect
    play: Callable[[Lab], None]
    expect: Expect
    naive: Expect | None = None
    twin: TwinCode | None = None
    records: str | None = None
    explore: bool = False
    where: str = ""


def scenario(
    *,
    source: str,
    injected: str,
    effect: Effect,
    expect: Expect,
    naive: Expect | None = None,
    twin: TwinCode | None = None,
    records: str | None = None,
    explore: bool = False,
) -> Callable[[Callable[[Lab], None]], Scenario]:
    """Declare the decorated function as a scenario; its name, with spaces for underscores, is the scenario's.

    naive and twin go together: the same story is also played with the twin's code, and must show the harm.
    records: the idempotency table, whose records in progress must at the end belong to failed events.
    explore: `retrylab explore` cuts this story everywhere; its `expect.effects` are then what no cut may change.
    """
    if source not in SOURCES:
        raise LabError(f"source {source!r}; wanted one of {', '.join(SOURCES)}")
    if (naive is None) is not (twin is None):
        raise LabError("a scenario needs both `naive` and `twin`, or neither")

    def declare(play: Callable[[Lab], None]) -> Scenario:
        name = play.__name__.replace("_", " ")
        where = f"{play.__module__}:{play.__name__}"
        return Scenario(name, source, injected, effect, play, expect, naive, twin, records, explore, where)

    return declare


def collect(folder: Path) -> list[Scenario]:
    """All scenarios of the modules in `folder`, in order of file name and definition."""
    if not folder.is_dir():
        raise LabError(f"{folder}: no such folder; wanted a folder with scenario modules")
    found: list[Scenario] = []
    for file in sorted(folder.glob("*.py")):
        module = _load(folder, file)
        own = f"{module.__name__}:"
        found += [v for v in vars(module).values() if isinstance(v, Scenario) and v.where.startswith(own)]
    if not found:
        raise LabError(f"{folder}: no scenario there; declare one with @scenario(...)")
    return found


def _load(folder: Path, file: Path) -> ModuleType:
    parent = str(folder.resolve().parent)
    if parent not in sys.path:
        sys.path.insert(0, parent)
    name = folder.name if file.stem == "__init__" else f"{folder.name}.{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except LabError:
        raise
    except Exception as error:
        del sys.modules[name]
        raise LabError(f"{file}: {type(error).__name__}: {error}") from error
    return module
