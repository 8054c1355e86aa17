"""Keeps handler code inside what the lab controls: waits, threads, sockets, processes and randomness.

What can be scheduled is scheduled (`sleep`, conditions, `ThreadPoolExecutor`). What cannot be is refused by name,
because an uncontrolled wait would stop virtual time and make the lab's verdict depend on the machine.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import concurrent.futures.thread
import hashlib
import os
import random
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


class Containment:
    """What the running lab makes of waits, threads, connections and randomness. One at a time in a process."""

    def __init__(self, scheduler: Scheduler, seed: int, spawn: Callable[[Callable[[], None]], Strand]) -> None:
        self.scheduler = scheduler
        self.spawn = spawn
        self.entropy = Entropy(seed)
        self._seed = seed
        self._guarded: list[tuple[type, str, Any]] = []

    def sleep(self, seconds: float) -> None:
        """`time.sleep` of the run: virtual inside an attempt, nothing at all outside."""
        if self.scheduler.current is not None:
            self.scheduler.pause(seconds)

    def start(self) -> None:
        _Replacements.install()
        self._random_state = random.getstate()
        random.seed(self._seed)
        for owner, name, what in _REFUSED:
            original = getattr(owner, name)
            self._guarded.append((owner, name, original))
            setattr(owner, name, self._guard(original, f"{what} ({owner.__name__}.{name})"))
        _Replacements.running = self

    def stop(self) -> None:
        _Replacements.running = None
        for owner, name, original in self._guarded:
            setattr(owner, name, original)
        self._guarded.clear()
        random.setstate(self._random_state)

    def _guard(self, original: Callable[..., Any], what: str) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.scheduler.current is not None:
                self.scheduler.stop_for(Refused(f"the handler used {what}, which the lab does not control"))
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


_REFUSED: tuple[tuple[type, str, str], ...] = (
    (threading.Thread, "start", "a raw thread; ThreadPoolExecutor is scheduled, threads are not"),
    # The class itself, also where a test tool has put a subclass in its place.
    (
        next(c for c in socket.socket.__mro__ if c.__module__ == "socket"),
        "connect",
        "a connection outside of boto3",
    ),
    (subprocess.Popen, "__init__", "a subprocess"),
    (asyncio.BaseEventLoop, "__init__", "an asyncio event loop"),
)


def _scheduled_wait(scheduler: Scheduler, condition: Any, timeout: float | None) -> bool:
    """`Condition.wait` for a strand: queued like a thread would be, woken by the same `notify`."""
    waiter = threading.Lock()
    waiter.acquire()
    condition._waiters.append(waiter)
    saved = condition._release_save()
    notified = scheduler.block_until(lambda: waiter.acquire(blocking=False), timeout)
    condition._acquire_restore(saved)
    if not notified and waiter in condition._waiters:
        condition._waiters.remove(waiter)
    return notified
