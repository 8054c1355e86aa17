"""A discrete-event scheduler whose coroutines can be abandoned.

Handler code runs in greenlets. When an attempt is cut, its greenlets are never resumed and never collected, so not
one more line of the handler runs: no `except`, no `finally`. That is what a killed Lambda sandbox looks like.
"""

from __future__ import annotations

import ctypes
import heapq
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent, greenlet

from retrylab.clock import NANOSECONDS, Clock
from retrylab.errors import LabError, Refused

BUSY_LIMIT = 10.0
"""Real seconds that handler code may compute between two steps."""

_set_timer = signal.setitimer


@dataclass(order=True)
class Event:
    """Something that happens at a moment of virtual time."""

    ns: int
    order: int
    action: Callable[[], None] = field(compare=False)
    background: bool = field(default=False, compare=False)
    cancelled: bool = field(default=False, compare=False)
    ended: Callable[[Event], None] = field(default=lambda _: None, compare=False)

    def cancel(self) -> None:
        self.cancelled = True
        self.ended(self)


class Strand:
    """One greenlet of an attempt: the handler itself, or work it gave to an executor."""

    def __init__(
        self,
        scheduler: Scheduler,
        body: Callable[[], Any],
        *,
        enter: Callable[[], None],
        leave: Callable[[], None],
        done: Callable[[Strand], None],
    ) -> None:
        self._scheduler = scheduler
        self.enter = enter
        self.leave = leave
        self._done = done
        self.result: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self.cut = False
        self._greenlet = greenlet(self._run, parent=scheduler.hub)
        self._body = body
        self._listeners: list[Callable[[], object]] = []

    def _run(self, *_: Any) -> None:
        try:
            self.result = self._body()
        except BaseException as error:
            self.error = error
        self.finished = True

    def resume(self, value: Any = None, error: BaseException | None = None) -> None:
        """Run the strand until it waits again or ends. Does nothing once it was cut."""
        if self.cut or self.finished:
            return
        if self._scheduler.switch_to(self, (value, error)):
            for listener in self._listeners:
                listener()
            self._done(self)

    def when_finished(self, listener: Callable[[], object]) -> None:
        """Call `listener` once the strand has ended by itself; at once when it already has."""
        if self.finished:
            listener()
        else:
            self._listeners.append(listener)

    def abandon(self) -> None:
        """Never resume this strand again, and never let it be collected: a collected greenlet runs its `finally`."""
        if self.cut or self.finished:
            return
        self.cut = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._greenlet))

    @property
    def target(self) -> greenlet:
        return self._greenlet


@dataclass
class _Blocked:
    strand: Strand
    ready: Callable[[], bool]
    timeout: Event | None


class Scheduler:
    """Runs events in order of time, then of creation. Everything in the lab that takes time goes through here."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.hub = getcurrent()
        self.current: Strand | None = None
        self.failure: BaseException | None = None
        self._events: list[Event] = []
        self._foreground: set[int] = set()
        self._watched = threading.current_thread() is threading.main_thread()
        self._order = 0
        self._blocked: list[_Blocked] = []

    def at(self, ns: int, action: Callable[[], None], *, background: bool = False) -> Event:
        """Plan `action` for a moment. A background event (a retention end) alone does not keep a run going."""
        self._order += 1
        event = Event(max(ns, self.clock.now_ns), self._order, action, background)
        if not background:
            self._foreground.add(self._order)
            event.ended = lambda event: self._foreground.discard(event.order)
        heapq.heappush(self._events, event)
        return event

    def after(self, seconds: float, action: Callable[[], None], *, background: bool = False) -> Event:
        return self.at(self.clock.in_ns(seconds), action, background=background)

    def run(self, until: float | None = None) -> None:
        """Run until only background events are left, or up to `until` seconds of virtual time."""
        limit = None if until is None else round(until * NANOSECONDS)
        while self._events:
            if limit is None and not self._foreground:
                break
            if limit is not None and self._events[0].ns > limit:
                break
            event = heapq.heappop(self._events)
            if event.cancelled:
                continue
            event.ended(event)
            self.clock.move_to(event.ns)
            event.action()
            self._wake_blocked()
            if self.failure is not None:
                raise self.failure
        if limit is not None and limit > self.clock.now_ns:
            self.clock.move_to(limit)

    def switch_to(self, strand: Strand, message: tuple[Any, BaseException | None]) -> bool:
        """Run a strand until it waits or ends. Says whether it ended."""
        strand.enter()
        self.current = strand
        self._watch(BUSY_LIMIT)
        try:
            strand.target.switch(message)
        finally:
            self._watch(0)
            self.current = None
            strand.leave()
        return strand.finished

    def start(self) -> None:
        """Watch for handler code that never waits: it would stop virtual time, and the lab with it."""
        if self._watched:
            self._outside = signal.signal(signal.SIGALRM, self._too_busy)

    def stop(self) -> None:
        if self._watched:
            signal.signal(signal.SIGALRM, self._outside)

    def _watch(self, seconds: float) -> None:
        if self._watched:
            _set_timer(signal.ITIMER_REAL, seconds)

    def _too_busy(self, *_: object) -> None:
        if self.current is not None:
            self.stop_for(
                Refused(
                    f"a handler computed for {BUSY_LIMIT:g} s of real time without a call or a sleep; virtual time "
                    "stands still meanwhile, so a loop that waits for a clock never ends in the lab"
                )
            )

    def suspend(self) -> Any:
        """Called inside a strand: wait until somebody resumes it. Returns what it was resumed with, or raises it."""
        value, error = self.hub.switch()
        if error is not None:
            raise error
        return value

    def pause(self, seconds: float) -> None:
        """Called inside a strand: let virtual time pass."""
        strand = self._running()
        self.after(seconds, strand.resume)
        self.suspend()

    def stop_for(self, failure: BaseException) -> None:
        """Called inside a strand: end the whole run with `failure`. The strand never continues."""
        strand = self._running()
        self.failure = failure
        strand.abandon()
        self.hub.switch()

    def block_until(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Called inside a strand: wait until `ready()` or the timeout. Says which of the two it was."""
        if ready():
            return True
        strand = self._running()
        blocked = _Blocked(strand, ready, None)
        if timeout is not None:
            blocked.timeout = self.after(timeout, lambda: self._give_up(blocked))
        self._blocked.append(blocked)
        return bool(self.suspend())

    def _give_up(self, blocked: _Blocked) -> None:
        if blocked in self._blocked:
            self._blocked.remove(blocked)
            blocked.strand.resume(value=False)

    def _wake_blocked(self) -> None:
        woken = True
        while woken:
            woken = False
            for blocked in list(self._blocked):
                if blocked.strand.cut:
                    self._blocked.remove(blocked)
                elif blocked.ready():
                    self._blocked.remove(blocked)
                    if blocked.timeout is not None:
                        blocked.timeout.cancel()
                    blocked.strand.resume(value=True)
                    woken = True

    def _running(self) -> Strand:
        if self.current is None:
            raise LabError("only handler code can wait; this ran outside of any attempt")
        return self.current
