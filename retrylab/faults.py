"""What can go wrong, and where: faults are placed at calls, and a call has a side before it and a side after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Side = Literal["before", "after"]
Kind = Literal["crash", "hang", "lose-response", "slow", "fail"]


@dataclass(frozen=True)
class Call:
    """One request of handler code at the wire. Every try of the SDK is a call of its own.

    target: path of the resource it goes to. keys: the business identity of the items it touches, as text.
    number: its place in its attempt, from 1. index: its place in the whole run, from 0.
    strand: 0 for the handler itself, above 0 for work it gave to an executor.
    """

    service: str
    operation: str
    target: str
    keys: tuple[str, ...]
    conditional: bool
    writes: bool
    attempt: int
    function: str
    number: int
    index: int
    strand: int

    def __str__(self) -> str:
        return f"{self.operation} {self.target}"


@dataclass
class Fault:
    """One planned fault.

    operation, on, key: which calls it meets (None = any); `on` is the path of the resource or its last parts, and
    `key` must be part of an item's key. attempt: only in this attempt of the function, counted from 1 (None = each).
    side: before the request is applied or after. nth: only at the nth call that matches within one attempt.
    every: at each call that matches, not only at the nth.
    seconds: how long a slow call takes in all. error: code and HTTP status of a refused call.
    """

    kind: Kind
    side: Side
    operation: str | None = None
    on: str | None = None
    key: str | None = None
    attempt: int | None = None
    nth: int = 1
    every: bool = False
    seconds: float = 0.0
    error: tuple[str, int] = ("ProvisionedThroughputExceededException", 400)
    function: str | None = None
    hits: int = 0
    _seen: dict[tuple[str, int], int] = field(default_factory=dict)

    def meets(self, call: Call, side: Side) -> bool:
        """Whether this fault strikes here. Counts the calls it could have met, so ask once a call and side."""
        if side != self.side or not self._describes(call):
            return False
        place = (call.function, call.attempt)
        self._seen[place] = self._seen.get(place, 0) + 1
        return self.every or self._seen[place] == self.nth

    def _describes(self, call: Call) -> bool:
        if self.attempt is not None and call.attempt != self.attempt:
            return False
        if self.operation is not None and call.operation != self.operation:
            return False
        if self.function is not None and not f"/{call.function}".endswith(f"/{self.function}"):
            return False
        if self.on is not None and not f"/{call.target}".endswith(f"/{self.on}"):
            return False
        return self.key is None or any(self.key in key for key in call.keys)

    def __str__(self) -> str:
        place = " ".join(part for part in (self.operation or "any call", self.on and f"on {self.on}") if part)
        which = f" in attempt {self.attempt}" if self.attempt else ""
        keyed = f" for {self.key}" if self.key else ""
        return f"{self.kind} {self.side} {place}{keyed}{which}"


class FaultPlan:
    """The faults of one run: described ones, and ones placed at a call by its index in the run."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.placed: dict[tuple[int, Side], Fault] = {}

    def place(self, index: int, side: Side, fault: Fault) -> None:
        """Let `fault` strike at the call with this index, whatever call it is."""
        self.placed[index, side] = fault

    def add(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    def at(self, call: Call, side: Side) -> Fault | None:
        """The first fault that strikes at this side of this call."""
        met = [fault for fault in self.faults if fault.meets(call, side)]
        placed = self.placed.get((call.index, side))
        struck = placed or (met[0] if met else None)
        if struck is not None:
            # Another fault at the same place is shadowed: it did not happen and must not count as met.
            struck.hits += 1
        return struck

    def unmet(self) -> list[Fault]:
        """Faults that never struck: a scenario that plans one and does not meet it proves nothing."""
        return [fault for fault in self.faults if not fault.hits]
