"""Where each event is on its way: the ledger that decides at the end whether anything was lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

State = Literal["waiting", "completed", "failure-path", "filtered", "lost"]


@dataclass
class Delivered:
    """One event that a scenario sent. `ended` names the failure path when that is where it went."""

    label: str
    source: str
    sent_at: float
    state: State = "waiting"
    ended: str = ""
    deliveries: int = 0
    why: str = ""

    def complete(self) -> None:
        """A success counts even after another copy of the event went down a failure path."""
        self.state, self.ended = "completed", "completed"

    def fail_to(self, path: str, why: str) -> None:
        if self.state != "completed":
            self.state, self.ended, self.why = "failure-path", path, why

    def lose(self, why: str) -> None:
        if self.state not in ("completed", "failure-path"):
            self.state, self.ended, self.why = "lost", "lost", why


@dataclass
class Ledger:
    events: list[Delivered] = field(default_factory=list)

    def send(self, label: str, source: str, at: float) -> Delivered:
        event = Delivered(label, source, at)
        self.events.append(event)
        return event
