"""The one place for time: every duration in the templates and in the functions' environment comes from here.

All values are whole seconds unless a docstring says otherwise. "Fact" numbers name the rule of AWS behind a
relation: the fact's chapter, section and row. Nothing here knows CDK, so a copied stack takes this file as
it is.

A class per source holds the few inputs, derives the rest and refuses, when it is made, any set of inputs
that would lose, repeat or block events: `TimeRelationError` names both sides of the broken relation and the
numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

LONGEST_QUEUE_RETENTION = 14 * DAY
"""The longest time SQS keeps a message (fact 3.1.13)."""

STREAM_RETENTION = DAY
"""How long a DynamoDB stream keeps a record; fixed (fact 4.2.14)."""

ASYNC_WAITS = (MINUTE, 2 * MINUTE)
"""Waits of Lambda's async queue before attempt 2 and before attempt 3 (fact 2.1.1)."""

CALL_ATTEMPTS = 3
"""Tries of one SDK or provider call, the first included (SDK retry mode `standard`, fact 1.5)."""

CONNECT_TIMEOUT = 1.0
"""Longest wait for a connection in one try; never longer than the read timeout."""

CALL_BACK_OFF = 0.15
"""Most that the SDK waits between the three tries: 0.05 s, then 0.1 s (fact 1.5). Throttled tries may wait
up to 1 s and 2 s instead, but a throttle is answered at once, so those tries do not use up their
timeouts."""

OWN_WORK = 0.05
"""Share of the function timeout left to the handler itself when every try of a call times out."""

LIFETIME_MARGIN = DAY
"""Added to the retry horizon, so that clock skew and a slow redrive do not outlive the record."""


class TimeRelationError(ValueError):
    """Two durations contradict each other, or one is out of the range AWS accepts."""


Side = tuple[str, float]
"""One side of a relation: what it is called, and its seconds."""


def require(holds: bool, left: Side, relation: str, right: Side, *, do: str) -> None:
    """Refuse a broken relation between two durations.

    `relation` is the one wanted ("above", "below", "at least"), `do` says what breaks and what to change.
    Raises `TimeRelationError`.
    """
    if not holds:
        raise TimeRelationError(
            f"{left[0]} is {round(left[1], 2)} s and must be {relation} {right[0]}, "
            f"which is {round(right[1], 2)} s: {do}"
        )


def within(name: str, value: int, low: int, high: int) -> None:
    """Refuse a value outside what AWS accepts, or one that is no whole number. Raises `TimeRelationError`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TimeRelationError(f"{name} is {value!r} and must be a whole number from {low} to {high}")
    if not low <= value <= high:
        raise TimeRelationError(f"{name} is {value} and must be from {low} to {high}")


def call_timeout(function_timeout: int) -> float:
    """The read timeout of one try, so that all tries of a call end before the function does.

    Whole seconds where there is room for the full connect timeout; tenths below that, with a connect
    timeout that is then as short as the read timeout.
    """
    one_try = (function_timeout * (1 - OWN_WORK) - CALL_BACK_OFF) / CALL_ATTEMPTS
    if one_try >= 2 * CONNECT_TIMEOUT:
        return float(int(one_try - CONNECT_TIMEOUT))
    return int(one_try / 2 * 10) / 10


def longest_call(read_timeout: float) -> float:
    """How long one call can take when every try runs into its timeouts, waits between the tries included."""
    return CALL_ATTEMPTS * (min(CONNECT_TIMEOUT, read_timeout) + read_timeout) + CALL_BACK_OFF


@dataclass(frozen=True, kw_only=True)
class FunctionTimes:
    """What every function needs: `timeout` of one attempt; the timeout of a call inside it follows."""

    timeout: int = 10

    def __post_init__(self) -> None:
        within("function timeout", self.timeout, 1, 900)
        require(
            longest_call(self.call_timeout) < self.timeout and self.call_timeout > 0,
            (f"the longest SDK or provider call ({CALL_ATTEMPTS} tries)", longest_call(self.call_timeout)),
            "below",
            ("the function timeout", self.timeout),
            do="a call that outlives the function is killed with its outcome unknown; raise the timeout",
        )

    @property
    def call_timeout(self) -> float:
        """Read timeout of one try of an SDK or provider call."""
        return call_timeout(self.timeout)


@dataclass(frozen=True, kw_only=True)
class ClaimTimes(FunctionTimes, ABC):
    """A function that claims: the lease is the time the attempt has left, plus `lease_margin`."""

    lease_margin: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        within("lease margin", self.lease_margin, 1, 900)
        require(
            self.record_lifetime >= self.retry_horizon,
            ("the record lifetime", self.record_lifetime),
            "at least",
            ("the retry horizon", self.retry_horizon),
            do="a retry after the record is gone takes effect again; derive the lifetime from the horizon",
        )

    @property
    def lease(self) -> int:
        """The longest lease: a claim made at the very start of the attempt."""
        return self.timeout + self.lease_margin

    @property
    @abstractmethod
    def automatic_retries(self) -> int:
        """From the first attempt to the last one made without anybody's help, when nothing is delayed."""

    @property
    @abstractmethod
    def retry_horizon(self) -> int:
        """The longest time after which the source, or one redrive of its failures, can still deliver."""

    @property
    def record_lifetime(self) -> int:
        """How long a COMPLETED record suppresses duplicates."""
        return self.retry_horizon + LIFETIME_MARGIN

    def short_key_lifetime(self, key_lifetime: int) -> str | None:
        """What a provider that remembers keys for `key_lifetime` seconds leaves open; None when it leaves
        nothing.

        A retry after an attempt with unknown outcome is harmless only while the provider still knows the
        key. A provider that forgets before the automatic retries end is refused (`TimeRelationError`): a
        plain crash could repeat the effect. One that forgets before the retry horizon is accepted, since
        real ones keep keys for a day or so, and described: redrive within its lifetime. 0 means that it
        takes no key, so nothing is forgotten.
        """
        if key_lifetime == 0:
            return None
        require(
            key_lifetime > self.automatic_retries,
            ("the provider's key lifetime", key_lifetime),
            "above",
            ("the span of automatic retries", self.automatic_retries),
            do="a crash could repeat the effect; use a provider that remembers keys longer",
        )
        if key_lifetime >= self.retry_horizon:
            return None
        return (
            f"The provider forgets keys after {key_lifetime} s, the retry horizon is {self.retry_horizon} s: "
            f"an attempt with unknown outcome that is redriven later can take effect twice. "
            "Redrive earlier, or ask the provider before you redrive."
        )


@dataclass(frozen=True, kw_only=True)
class QueueTimes(ClaimTimes):
    """An SQS queue, its dead-letter queue and the mapping that feeds the function."""

    window: int = 1
    max_receive_count: int = 5
    retention: int = 4 * DAY
    dead_letter_retention: int = LONGEST_QUEUE_RETENTION

    def __post_init__(self) -> None:
        within("batch window", self.window, 0, 300)
        # Below 5, throttled receives alone could dead-letter a message that was never worked on (fact 3.1.7).
        within("maxReceiveCount", self.max_receive_count, 5, 1000)
        within("queue retention", self.retention, MINUTE, LONGEST_QUEUE_RETENTION)
        within("dead-letter queue retention", self.dead_letter_retention, MINUTE, LONGEST_QUEUE_RETENTION)
        super().__post_init__()
        require(
            self.visibility_timeout >= 6 * self.timeout + self.window,
            ("the visibility timeout", self.visibility_timeout),
            "at least",
            ("6 x function timeout + batch window", 6 * self.timeout + self.window),
            do="a message would be delivered again while it is worked on; derive it from the timeout",
        )
        require(
            self.lease < self.visibility_timeout,
            ("the lease (function timeout + lease margin)", self.lease),
            "below",
            ("the visibility timeout", self.visibility_timeout),
            do="each retry would find the record still in progress and be wasted; lower the lease margin",
        )
        require(
            self.dead_letter_retention > self.retention,
            ("the dead-letter queue retention", self.dead_letter_retention),
            "above",
            ("the queue retention", self.retention),
            do="a dead letter keeps its first enqueue time and could expire on arrival; shorten the queue's",
        )
        require(
            self.automatic_retries < self.retention,
            ("the span of automatic retries (maxReceiveCount x visibility timeout)", self.automatic_retries),
            "below",
            ("the queue retention", self.retention),
            do="a message would expire before it is dead-lettered; lower maxReceiveCount or keep them longer",
        )

    @property
    def visibility_timeout(self) -> int:
        """6 x function timeout + batch window (fact 3.1.4)."""
        return 6 * self.timeout + self.window

    @property
    def automatic_retries(self) -> int:
        """maxReceiveCount receives, one visibility timeout apart (fact 3.2.1)."""
        return self.max_receive_count * self.visibility_timeout

    @property
    def retry_horizon(self) -> int:
        """Fact 8.0, row SQS, one redrive included.

        A standard queue counts a message's age from its first enqueue, also in the dead-letter queue (fact
        3.2.7): so the last moment for a redrive is the dead-letter queue's retention after the first
        enqueue. The redrive makes a new message with a fresh age (fact 3.2.9), which the queue keeps for
        its own retention and which may be received just before that ends: one visibility timeout more. 14 d
        + 4 d + 61 s by default.
        """
        return self.dead_letter_retention + self.retention + self.visibility_timeout


@dataclass(frozen=True, kw_only=True)
class AsyncTimes(ClaimTimes):
    """An EventBridge rule in front of Lambda's async queue; two retry owners, one behind the other.

    The rule retries the *delivery* for `rule_retry_age` (fact 2.5.1); once Lambda has accepted the event,
    its async queue retries the *function* for `event_age` (facts 2.1.1-2.1.3). What either gives up is kept
    for `failure_retention` in a queue of its own.
    """

    retries: int = 2
    event_age: int = HOUR
    rule_retries: int = 185
    rule_retry_age: int = HOUR
    failure_retention: int = LONGEST_QUEUE_RETENTION

    def __post_init__(self) -> None:
        within("async retries", self.retries, 0, 2)
        within("event age", self.event_age, MINUTE, 6 * HOUR)
        within("rule retries", self.rule_retries, 0, 185)
        within("rule retry age", self.rule_retry_age, MINUTE, DAY)
        within("failure retention", self.failure_retention, MINUTE, LONGEST_QUEUE_RETENTION)
        super().__post_init__()
        require(
            self.event_age >= sum(ASYNC_WAITS) + 3 * self.timeout,
            ("the event age", self.event_age),
            "at least",
            ("180 s + 3 x function timeout", sum(ASYNC_WAITS) + 3 * self.timeout),
            do="Lambda looks ahead and drops the event before its last retry; raise the event age",
        )
        if self.retries:
            require(
                self.lease < self.waits,
                ("the lease (function timeout + lease margin)", self.lease),
                "below",
                ("the start of the last retry", self.waits),
                do="every retry would find the record still in progress; lower the timeout or the margin",
            )

    @property
    def waits(self) -> int:
        """The waits before the last retry, added up: 180 s with two retries."""
        return sum(ASYNC_WAITS[: self.retries])

    @property
    def wasted_retry(self) -> str | None:
        """Says so when attempt 2 starts while the lease of attempt 1 still runs; None when it does not.

        AWS does not say whether the wait counts from the start or the end of the failed attempt (fact
        2.1.9); this takes the start, the stricter reading.
        """
        if not self.retries or self.lease < ASYNC_WAITS[0]:
            return None
        return (
            f"The lease (function timeout + lease margin) is {self.lease} s and attempt 2 starts after "
            f"{ASYNC_WAITS[0]} s: it will find the record still in progress and be wasted. Attempt 3 is not."
        )

    @property
    def automatic_retries(self) -> int:
        """The waits and the runs of all attempts (fact 2.1.1)."""
        return self.waits + (self.retries + 1) * self.timeout

    @property
    def retry_horizon(self) -> int:
        """Fact 8.0, row rule -> async, one redrive included.

        The rule's retries, the async queue's age and one run; then the failure waits in its queue as long
        as that keeps it; then somebody puts the event on the bus again and all of it may happen once more.
        """
        once = self.rule_retry_age + self.event_age + self.timeout
        return once + self.failure_retention + once


@dataclass(frozen=True, kw_only=True)
class StreamTimes(FunctionTimes):
    """A DynamoDB stream and the mapping that feeds the function.

    The function holds no lease: the version guard of the search view makes a repeat harmless at any time.
    An operation that claims does not belong behind this mapping without a record age well above its lease,
    because an in-progress record spends attempts and AWS publishes no back-off between them (fact 4.2.9).
    """

    window: int = 0
    retries: int = 5
    record_age: int = 6 * HOUR
    failure_retention: int = 14 * DAY

    def __post_init__(self) -> None:
        within("batch window", self.window, 0, 300)
        within("stream retries", self.retries, 0, 10_000)
        within("record age", self.record_age, MINUTE, 7 * DAY)
        within("failed records retention", self.failure_retention, DAY, 3650 * DAY)
        super().__post_init__()
        require(
            self.record_age < STREAM_RETENTION,
            ("the record age", self.record_age),
            "below",
            ("the retention of a DynamoDB stream", STREAM_RETENTION),
            do="the stream would drop the record first and leave no failure record; lower the record age",
        )
        require(
            self.record_age > (self.retries + 1) * self.timeout + self.window,
            ("the record age", self.record_age),
            "above",
            (
                "(stream retries + 1) x function timeout + batch window",
                (self.retries + 1) * self.timeout + self.window,
            ),
            do="records would age out before their retries are made; raise the age or lower the retries",
        )
        require(
            self.tombstone_lifetime >= self.retry_horizon,
            ("the tombstone lifetime", self.tombstone_lifetime),
            "at least",
            ("the retry horizon", self.retry_horizon),
            do="an old record redriven late would bring a removed order back; derive it from the horizon",
        )

    @property
    def failure_retention_days(self) -> int:
        """Whole days, because S3 lifecycle rules count in days; rounded up."""
        return -(-self.failure_retention // DAY)

    @property
    def retry_horizon(self) -> int:
        """Fact 8.0, row stream: the record age, then the time its failure record is kept, then one more run.

        S3 deletes expired objects at the end of the day they expire, so one day more.
        """
        return min(STREAM_RETENTION, self.record_age) + self.failure_retention_days * DAY + DAY + self.timeout

    @property
    def tombstone_lifetime(self) -> int:
        """How long the marker of a removed order stays in the search view."""
        return self.retry_horizon + LIFETIME_MARGIN
