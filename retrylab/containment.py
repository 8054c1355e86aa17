"""Keeps handler code inside what the lab controls: waits, threads, sockets, processes and randomness.

What can be scheduled is scheduled (`sleep`, conditions, `ThreadPoolExecutor`). What cannot be is refused by name,
because an uncontrolled wait would stop virtual time and make the lab's verdict depend on the machine.
"""

from __future__ import annotations

import _thread
import asyncio
import concurrent.futures
import concurrent.futures.thread
import hashlib
import os
import random
import select
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from retrylab.clock import replace_everywhere
from retrylab.errors import Refused
from retrylab.scheduler import Scheduler, Strand

_RealExecutor = concurrent.futures.ThreadPoolExecutor


class Entropy:
    """Seeded bytes in place of the operating system's, so that equal runs draw equal tokens."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = 0

    def bytes(self, count: int) -> bytes:
        self._drawn += 1
        blocks = (
            hashlib.sha256(f"{self._seed}/{self._drawn}/{index}".encode()).digest() for index in range(count // 32 + 1)
        )
        return b"".join(blocks)[:count]


class ScheduledExecutor(concurrent.futures.Executor):
    """`ThreadPoolExecutor` inside an attempt: each worker is a strand of the lab's scheduler."""

    def __init__(
        self,
        spawn: Callable[[Callable[[], None]], Strand],
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._spawn = spawn
        self._max_workers = max_workers or 32
        self._initializer = initializer
        self._initargs = initargs
        self._tasks: deque[tuple[concurrent.futures.Future[Any], Callable[[], Any]]] = deque()
        self._workers: list[Strand] = []
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._tasks.append((future, lambda: fn(*args, **kwargs)))
        self._workers = [worker for worker in self._workers if not worker.finished]
        if len(self._workers) < self._max_workers:
            self._workers.append(self._spawn(self._work))
        return future

    def _work(self) -> None:
        if self._initializer is not None:
            self._initializer(*self._initargs)
        while self._tasks:
            future, task = self._tasks.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = task()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            while self._tasks:
                self._tasks.popleft()[0].cancel()
        if wait:
            for worker in self._workers:
                done = threading.Event()
                worker.when_finished(done.set)
                done.wait()


class ScheduledLock:
    """`threading.Lock` for handler code: whoever waits for it lets virtual time pass."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._held and not blocking:
            return False
        while self._held:
            if not self._scheduler.block_until(lambda: not self._held, None if timeout < 0 else timeout):
                return False
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class ScheduledRLock(ScheduledLock):
    """`threading.RLock` for handler code. Its owner is a strand: all strands share one thread of the system."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._owner: Strand | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not (self._held and self._owner is self._scheduler.current):
            if not super().acquire(blocking, timeout):
                return False
            self._owner = self._scheduler.current
        self._depth += 1
        return True

    def release(self) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()

    def _is_owned(self) -> bool:
        return self._held and self._owner is self._scheduler.current

    def _release_save(self) -> int:
        """For `Condition`: give the lock up whole, however deep it is held."""
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self.acquire()
        self._depth = depth


class Containment:
    """What the running lab makes of waits, threads, connections and randomness. One at a time in a process."""

    def __init__(
        self,
        scheduler: Scheduler,
        seed: int,
        spawn: Callable[[Callable[[], None]], Strand],
        leave: Callable[[], None],
        who: Callable[[], str],
    ) -> None:
        self.scheduler = scheduler
        self.spawn = spawn
        self._leave = leave
        self._who = who
        self.entropy = Entropy(seed)
        self._seed = seed
        self._guarded: list[tuple[Any, str, Any]] = []

    def sleep(self, seconds: float) -> None:
        """`time.sleep` of the run: virtual inside an attempt, nothing at all outside."""
        if self.scheduler.current is not None:
            self.scheduler.pause(seconds)

    def start(self) -> None:
        _Replacements.install()
        self._random_state = random.getstate()
        random.seed(self._seed)
        for owner, name, what in _REFUSED:
            self._set(owner, name, self._guard(getattr(owner, name), f"{what} ({owner.__name__}.{name})"))
        self._set(os, "_exit", self._exit(os._exit))
        self._set(threading, "Lock", self._lock(threading.Lock, ScheduledLock))
        self._set(threading, "RLock", self._lock(threading.RLock, ScheduledRLock))
        _Replacements.running = self

    def stop(self) -> None:
        _Replacements.running = None
        for owner, name, original in reversed(self._guarded):
            setattr(owner, name, original)
        self._guarded.clear()
        random.setstate(self._random_state)

    def _set(self, owner: Any, name: str, replacement: Any) -> None:
        self._guarded.append((owner, name, getattr(owner, name)))
        setattr(owner, name, replacement)

    def _lock(self, original: Callable[[], Any], scheduled: Callable[[Scheduler], Any]) -> Callable[[], Any]:
        """Locks that handler code makes are waited for on virtual time: a real one would stop all strands."""
        return lambda: original() if self.scheduler.current is None else scheduled(self.scheduler)

    def _exit(self, original: Callable[[int], Any]) -> Callable[[int], None]:
        def leave(status: int) -> None:
            if self.scheduler.current is None:
                original(status)
            self._leave()

        return leave

    def _guard(self, original: Callable[..., Any], what: str) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.scheduler.current is not None:
                self.scheduler.stop_for(Refused(f"{self._who()} used {what}, which the lab does not control"))
            return original(*args, **kwargs)

        return guarded


class _Replacements:
    """The process-wide replacements: they ask for the running lab, and else do what the originals do."""

    running: Containment | None = None
    _installed = False

    @classmethod
    def inside(cls) -> Containment | None:
        """The running lab, when the caller is handler code."""
        return cls.running if cls.running is not None and cls.running.scheduler.current is not None else None

    @classmethod
    def install(cls) -> None:
        if cls._installed:
            return
        cls._installed = True
        cls._replace_randomness()
        cls._replace_waits()

    @classmethod
    def _replace_randomness(cls) -> None:
        real_urandom = os.urandom

        def urandom(count: int) -> bytes:
            return real_urandom(count) if cls.running is None else cls.running.entropy.bytes(count)

        replace_everywhere(os, "urandom", urandom)

    @classmethod
    def _replace_waits(cls) -> None:
        real_wait = threading.Condition.wait

        def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            lab = cls.inside()
            if lab is None:
                return real_wait(condition, timeout)
            return _scheduled_wait(lab.scheduler, condition, timeout)

        class Executor(_RealExecutor):
            """Scheduled inside an attempt, the real one elsewhere."""

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                lab = _Replacements.inside()
                if lab is None:
                    return super().__new__(cls)
                kwargs.pop("thread_name_prefix", None)
                return ScheduledExecutor(lab.spawn, *args, **kwargs)

        setattr(threading.Condition, "wait", wait)  # noqa: B010 - a plain assignment does not pass the type checker
        replace_everywhere(concurrent.futures, "ThreadPoolExecutor", Executor)


_REFUSED: tuple[tuple[Any, str, str], ...] = (
    (threading.Thread, "start", "a raw thread; ThreadPoolExecutor is scheduled, threads are not"),
    # The class itself, also where a test tool has put a subclass in its place.
    (
        next(c for c in socket.socket.__mro__ if c.__module__ == "socket"),
        "connect",
        "a connection outside of boto3",
    ),
    (socket, "getaddrinfo", "a connection outside of boto3"),
    (select, "select", "a wait for sockets"),
    (select, "poll", "a wait for sockets"),
    (subprocess.Popen, "__init__", "a subprocess"),
    (os, "system", "a subprocess"),
    (os, "fork", "a subprocess"),
    (os, "posix_spawn", "a subprocess"),
    (os, "execv", "a subprocess"),
    (os, "kill", "a signal"),
    (signal, "setitimer", "a signal"),
    (signal, "alarm", "a signal"),
    (_thread, "start_new_thread", "a raw thread; ThreadPoolExecutor is scheduled, threads are not"),
    (asyncio.BaseEventLoop, "__init__", "an asyncio event loop"),
)


def _scheduled_wait(scheduler: Scheduler, condition: Any, timeout: float | None) -> bool:
    """`Condition.wait` for a strand: queued like a thread would be, woken by the same `notify`."""
    waiter = _thread.allocate_lock()
    waiter.acquire()
    condition._waiters.append(waiter)
    saved = condition._release_save()
    notified = scheduler.block_until(lambda: waiter.acquire(blocking=False), timeout)
    condition._acquire_restore(saved)
    if not notified and waiter in condition._waiters:
        condition._waiters.remove(waiter)
    return notified
