"""The story of one run: what happened, when, to whom. Equal runs give equal traces, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """One thing that happened. `at` in virtual seconds; `who` a source, function or attempt; `kind` a fixed word."""

    at: float
    who: str
    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        return f"{_clock(self.at)}  {self.who:<28} {self.text}"


@dataclass
class Trace:
    steps: list[Step] = field(default_factory=list)

    def add(self, at: float, who: str, kind: str, text: str, **data: Any) -> None:
        self.steps.append(Step(at, who, kind, text, data))

    def of(self, kind: str) -> list[Step]:
        return [step for step in self.steps if step.kind == kind]

    def story(self) -> str:
        return "\n".join(step.line() for step in self.steps)


def _clock(seconds: float) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours:02d}:{minutes:02d}:{rest:02d}.{thousandths:03d}"
    return f"{days}d {text}" if days else f"   {text}"


def duration(seconds: float) -> str:
    """A span of virtual time as a person says it: `61.3 s`, `18 min`, `4.2 d`."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (120.0, "min")):
        if seconds >= size:
            return f"{seconds / (60.0 if unit == 'min' else size):.1f} {unit}"
    return f"{seconds:.1f} s"
