"""One invocation: its Lambda context, the delivery being handled, its log lines and its metrics.

The context is registered before anything else (fact 3.2): a lease taken from an earlier invocation's context
would be born expired. State lives in a context variable, so invocations that share an environment never mix
(fact 5.13).
"""

import threading
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import inf

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from shared.errors import LoggableError, NoInvocationError
from shared.once import Once


@dataclass(frozen=True, eq=False)
class Invocation:
    """The running invocation, seen from one delivery (message, event or stream record)."""

    context: LambdaContext
    delivery_id: str | None = None
    _counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, operation: str, metric: str) -> None:
        """Add 1 to a metric of an operation; all are written when the invocation ends."""
        with self._lock:
            self._counts[operation][metric] += 1

    def outcome(self, operation: str, outcome: str, record_id: str, **facts: object) -> None:
        """Log and count what became of one attempt; the metric of `taken-over` is `TakenOver`."""
        self.count(operation, outcome.title().replace("-", ""))
        self.log(f"{operation} {outcome}", operation, outcome=outcome, record_id=record_id, **facts)

    def log(self, message: str, operation: str, **facts: object) -> None:
        """Write one info line with the fields that tie it to the operation, the delivery and the request."""
        self._write(logger().info, message, {"operation": operation, **facts})

    def _write(self, write: Callable[..., None], message: str, facts: dict[str, object]) -> None:
        write(message, extra={"delivery_id": self.delivery_id, "request_id": self.context.aws_request_id, **facts})

    def failure(self, operation: str, error: Exception) -> None:
        """Log and count a delivery that failed; an error that may quote the payload loses its message."""
        self.count(operation, "Failed")
        facts: dict[str, object] = {"operation": operation, "error": type(error).__name__}
        if isinstance(error, LoggableError):
            facts["reason"] = str(error)
        else:
            frames = traceback.extract_tb(error.__traceback__)
            facts["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        if error.__cause__ is not None:
            facts["cause"] = type(error.__cause__).__name__
        self._write(logger().error, f"{operation} failed", facts)

    def flush_metrics(self) -> None:
        """Write one EMF line an operation, with `operation` as its only dimension."""
        for operation, counts in sorted(self._counts.items()):
            # An empty service keeps Powertools from adding its own dimension.
            metrics = EphemeralMetrics(service="")
            metrics.add_dimension("operation", operation)
            for name, total in sorted(counts.items()):
                metrics.add_metric(name, MetricUnit.Count, total)
            metrics.flush_metrics()
        self._counts.clear()


_TO_SAY_SO_SECONDS = 0.25  # what reporting a failure takes
_current: ContextVar[Invocation] = ContextVar("invocation")


@Once
def logger() -> Logger:
    """The function's structured logger, made at first use."""
    return Logger(location=None)  # it would name the helper that writes the line


def current_invocation() -> Invocation:
    """Return the registered invocation. Raises NoInvocationError outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise NoInvocationError(
            "no invocation is registered here; wanted the call inside process_queue, process_event or process_stream "
            "(a thread needs contextvars.copy_context())"
        ) from None


def seconds_left() -> float:
    """Return the time for calls that end here and not by a kill; without end outside of an invocation."""
    running = _current.get(None)
    return inf if running is None else running.context.get_remaining_time_in_millis() / 1000 - _TO_SAY_SO_SECONDS


@contextmanager
def invocation(context: LambdaContext) -> Iterator[Invocation]:
    """Register the Lambda context first in a handler; metrics are written at the end, also on failure."""
    running = Invocation(context)
    token = _current.set(running)
    try:
        yield running
    finally:
        _current.reset(token)
        running.flush_metrics()


@contextmanager
def delivery(running: Invocation, delivery_id: str) -> Iterator[Invocation]:
    """Handle one delivery of the invocation: log lines inside carry its id."""
    one = replace(running, delivery_id=delivery_id)
    token = _current.set(one)
    try:
        yield one
    finally:
        _current.reset(token)
