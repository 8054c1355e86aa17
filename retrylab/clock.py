"""Virtual time. Inside a run every clock that Python code can read follows the lab's clock.

`time-machine` covers the wall clock (also where it was imported by name). The monotonic clocks and `sleep` are
replaced here, because the lab must also decide who runs while somebody sleeps. They are replaced once a process, by
functions that ask for the running lab and else do what the originals do: a module that is first imported during a run
would otherwise keep the clock of that run for ever.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import time_machine

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
"""Where every run starts."""

NANOSECONDS = 1_000_000_000

real_perf_counter = time.perf_counter


class Clock:
    """Virtual nanoseconds since EPOCH. `start` makes it the one that Python's clocks follow."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._travel: Any = None

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self.now_ns / NANOSECONDS

    def in_ns(self, seconds: float) -> int:
        """The moment `seconds` from now. Moments are compared as whole nanoseconds: sums of floats drift apart."""
        return self.now_ns + round(seconds * NANOSECONDS)

    def since(self, ns: int) -> float:
        """Seconds since a moment, exact to the nanosecond."""
        return (self.now_ns - ns) / NANOSECONDS

    @property
    def wall(self) -> dt.datetime:
        return EPOCH + dt.timedelta(microseconds=self.now_ns // 1000)

    @property
    def wall_ms(self) -> int:
        return int(EPOCH.timestamp() * 1000) + self.now_ns // 1_000_000

    def iso(self) -> str:
        """The wall clock as AWS writes it into records: milliseconds and `Z`."""
        return self.wall.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.now_ns // 1_000_000 % 1000:03d}Z"

    def start(self, sleep: Callable[[float], None]) -> None:
        """Take over Python's clocks; `sleep` decides what a sleeping handler means."""
        _Clocks.install()
        travel = time_machine.travel(EPOCH, tick=False)
        self._travel = travel.start()
        self._stop_travel = travel.stop
        _Clocks.running, _Clocks.sleep = self, sleep

    def stop(self) -> None:
        _Clocks.running = None
        # time-machine takes away the TZ that it set, and a handler may have done so before.
        os.environ.setdefault("TZ", "UTC")
        self._stop_travel()

    def move_to(self, ns: int) -> None:
        self.now_ns = ns
        self._travel.move_to(self.wall)


class _Clocks:
    """The process-wide replacements of `time`'s functions."""

    running: Clock | None = None
    sleep: Callable[[float], None]
    _installed = False

    @classmethod
    def install(cls) -> None:
        if cls._installed:
            return
        cls._installed = True
        for name, read in (
            ("monotonic", lambda clock: clock.now_ns / NANOSECONDS),
            ("monotonic_ns", lambda clock: clock.now_ns),
            ("perf_counter", lambda clock: clock.now_ns / NANOSECONDS),
            ("perf_counter_ns", lambda clock: clock.now_ns),
        ):
            replace_everywhere(time, name, cls._clock_reader(getattr(time, name), read))
        real_sleep = time.sleep

        def sleep(seconds: float) -> None:
            if cls.running is None:
                real_sleep(seconds)
            else:
                cls.sleep(seconds)

        replace_everywhere(time, "sleep", sleep)

    @classmethod
    def _clock_reader(cls, original: Callable[[], Any], read: Callable[[Clock], Any]) -> Callable[[], Any]:
        def reader() -> Any:
            clock = cls.running
            return original() if clock is None else read(clock)

        return reader


def replace_everywhere(owner: Any, name: str, replacement: Any) -> None:
    """Replace `owner.name`, and every copy of it that a module took by `from owner import name`."""
    original = getattr(owner, name)
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.split(".")[0] == "retrylab":
            continue
        for attribute, value in list(vars(module).items()):
            if value is original:
                setattr(module, attribute, replacement)
