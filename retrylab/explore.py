"""Plays one story again and again, each time with other faults at other calls, and judges every run.

A schedule is a set of faults placed at calls by their index in the run. Runs are deterministic, so every run with the
same beginning makes the same calls up to the next fault: the tree of schedules is walked from the story without faults
by adding one fault behind the last.

Equivalent schedules are not tried twice: between two calls of one attempt nothing happens that another attempt could
see, so a crash before a call equals the crash after the call before it. Crashes *before* a call are therefore placed at
the first call of an attempt only. Where calls of one attempt overlap (an executor), both sides of each are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from retrylab.assembly import Assembly
from retrylab.faults import Call, Fault, Kind, Side
from retrylab.judge import play
from retrylab.lab import Lab
from retrylab.parameters import Parameters
from retrylab.scenario import Scenario

KINDS: tuple[tuple[Kind, Side], ...] = (
    ("crash", "before"),
    ("crash", "after"),
    ("hang", "after"),
    ("lose-response", "after"),
    ("fail", "before"),
)
"""The faults tried at a call: cut, blinded (applied, but the answer is lost), refused by the service."""


@dataclass(frozen=True)
class Placed:
    """One fault at one call of a run."""

    index: int
    side: Side
    kind: Kind
    call: str

    def __str__(self) -> str:
        return f"{self.kind} {self.side} {self.call}"


Schedule = tuple[Placed, ...]


@dataclass(frozen=True)
class Violation:
    """A schedule that broke something, with the story of its run."""

    schedule: Schedule
    problems: tuple[str, ...]
    story: str

    def __str__(self) -> str:
        return f"{' + '.join(str(fault) for fault in self.schedule) or 'no fault'}: {'; '.join(self.problems)}"


@dataclass
class Proof:
    """What an exploration tried and found.

    schedules: distinct runs, the one without faults included. calls: every call that some run made. reached: those at
    which some run placed a fault; the others only occur behind the last fault that was allowed.
    """

    scenario: Scenario
    schedules: int = 0
    violations: list[Violation] = field(default_factory=list)
    calls: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)

    @property
    def unreached(self) -> list[str]:
        return sorted(self.calls - self.reached)


def explore(
    scenario: Scenario,
    assembly: Assembly,
    *,
    faults: int = 2,
    seed: int = 1,
    parameters: Parameters | None = None,
) -> Iterator[Proof]:
    """Try every schedule of up to `faults` faults. Yields the growing proof after each run; the last is complete.

    Each run must have the effects and the end that the scenario expects, and break no invariant. How often an event is
    delivered or a provider called depends on the faults, so neither is compared.
    """
    proof = Proof(scenario)
    expect = replace(scenario.expect, deliveries=None, calls=None)
    waiting: list[Schedule] = [()]
    while waiting:
        schedule = waiting.pop()

        def prepare(lab: Lab, schedule: Schedule = schedule) -> None:
            for fault in schedule:
                refusal = ("InternalServerError", 500)
                lab.faults.place(fault.index, fault.side, Fault(fault.kind, fault.side, error=refusal))

        run, lab = play(scenario, assembly, expect, seed=seed, parameters=parameters, prepare=prepare)
        proof.schedules += 1
        proof.calls |= {_name(call) for call in lab.calls}
        proof.reached |= {fault.call for fault in schedule}
        if run.problems:
            proof.violations.append(Violation(schedule, tuple(run.problems), run.trace.story()))
        elif len(schedule) < faults:
            # A schedule that broke something is reported as it is: more faults would only hide which one did it.
            waiting += reversed(list(_children(schedule, lab.calls)))
        yield proof


def _children(schedule: Schedule, calls: list[Call]) -> Iterator[Schedule]:
    """The schedules with one fault more, behind the last one of this schedule."""
    overlapping = {(call.function, call.attempt) for call in calls if call.strand > 0}
    for call in calls[schedule[-1].index + 1 if schedule else 0 :]:
        for kind, side in KINDS:
            redundant = (kind, side) == ("crash", "before") and call.number > 1
            if not redundant or (call.function, call.attempt) in overlapping:
                yield (*schedule, Placed(call.index, side, kind, _name(call)))


def _name(call: Call) -> str:
    return f"{call.operation} {call.target} of {call.function} attempt {call.attempt}"
