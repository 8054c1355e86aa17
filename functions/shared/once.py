"""Things made once an execution environment, at first use, also when several threads come first."""

import threading
from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """Decorates a maker: the same arguments give the same object for the life of the environment."""

    def __init__(self, make: Callable[..., T]) -> None:
        self._make = make
        self._made: dict[tuple[Hashable, ...], T] = {}
        # functools.cache may make twice at once, and neither a boto3 client nor a Logger can bear that.
        self._lock = threading.RLock()
        update_wrapper(self, make)

    def __call__(self, *args: Hashable) -> T:
        """Return what was made for these arguments, or make it."""
        with self._lock:
            if args not in self._made:
                self._made[args] = self._make(*args)
            return self._made[args]

    def forget(self) -> None:
        """Drop what was made, as a cold start does."""
        with self._lock:
            self._made.clear()
