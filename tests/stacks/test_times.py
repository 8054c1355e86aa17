"""The time module: what it derives, and every relation it refuses, each broken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stacks import times
from stacks.times import (
    DAY,
    HOUR,
    AsyncTimes,
    ClaimTimes,
    FunctionTimes,
    QueueTimes,
    StreamTimes,
    TimeRelationError,
)


class TestDerived:
    def test_queue(self) -> None:
        queue = QueueTimes()
        assert queue.visibility_timeout == 6 * 10 + 1
        assert queue.lease == 15
        assert queue.retry_horizon == 14 * DAY + 4 * DAY + 61
        assert queue.record_lifetime == queue.retry_horizon + DAY

    def test_async(self) -> None:
        event = AsyncTimes()
        assert (event.retries, event.event_age, event.rule_retry_age) == (2, HOUR, HOUR)
        assert event.retry_horizon == 2 * (HOUR + HOUR + 10) + 14 * DAY
        assert event.wasted_retry is None

    def test_stream(self) -> None:
        stream = StreamTimes()
        assert (stream.retries, stream.record_age) == (5, 21_600)
        assert stream.tombstone_lifetime == 21_600 + 14 * DAY + DAY + 10 + DAY

    @pytest.mark.parametrize("timeout", [1, 2, 3, 6, 7, 10, 29, 60, 120])
    def test_every_call_ends_before_its_function(self, timeout: int) -> None:
        function = FunctionTimes(timeout=timeout)
        connect = min(times.CONNECT_TIMEOUT, function.call_timeout)
        assert 3 * (connect + function.call_timeout) + 0.15 < timeout

    def test_a_function_of_three_seconds_satisfies_everything(self) -> None:
        for source in (QueueTimes, AsyncTimes, StreamTimes):
            assert source(timeout=3).call_timeout == 0.4

    def test_a_wasted_attempt_is_told_and_not_refused(self) -> None:
        assert "65 s and attempt 2 starts after 60 s" in str(AsyncTimes(timeout=60).wasted_retry)
        assert AsyncTimes(timeout=54).wasted_retry is None
        assert AsyncTimes(timeout=55).wasted_retry is not None

    def test_a_claim_without_a_source_has_no_horizon(self) -> None:
        with pytest.raises(TypeError, match=r"automatic_retries\W+retry_horizon"):
            ClaimTimes()  # type: ignore[abstract]


class LowVisibility(QueueTimes):
    visibility_timeout = 30


class ShortRecord(QueueTimes):
    record_lifetime = HOUR


class ShortEvent(AsyncTimes):
    record_lifetime = 6 * HOUR


class ShortTombstone(StreamTimes):
    tombstone_lifetime = DAY


class SlowCalls(FunctionTimes):
    call_timeout = 3.0


BROKEN: list[tuple[Callable[[], object], str, str, list[str]]] = [
    (LowVisibility, "visibility timeout", "6 x function timeout + batch window", ["30 s", "61 s"]),
    (lambda: QueueTimes(lease_margin=51), "lease", "visibility timeout", ["is 61 s", "below", "61 s"]),
    (lambda: QueueTimes(retention=14 * DAY), "dead-letter queue retention", "queue retention", ["1209600 s"]),
    (lambda: QueueTimes(retention=300), "automatic retries", "queue retention", ["305 s", "300 s"]),
    (ShortRecord, "record lifetime", "retry horizon", ["3600 s", "1555261 s"]),
    (ShortEvent, "record lifetime", "retry horizon", ["21600 s", "1224020 s"]),
    (lambda: AsyncTimes(event_age=209), "event age", "180 s + 3 x function timeout", ["209 s", "210 s"]),
    (lambda: AsyncTimes(timeout=175), "lease", "start of the last retry", ["180 s", "below"]),
    (lambda: AsyncTimes(timeout=60, retries=1), "lease", "start of the last retry", ["65 s", "60 s"]),
    (lambda: StreamTimes(record_age=DAY), "record age", "retention of a DynamoDB stream", ["86400 s"]),
    (lambda: StreamTimes(record_age=60), "record age", "(stream retries + 1)", ["60 s"]),
    (ShortTombstone, "tombstone lifetime", "retry horizon", ["86400 s", "1317610 s"]),
    (SlowCalls, "longest SDK or provider call", "function timeout", ["12.15 s", "10 s"]),
]


@pytest.mark.parametrize(("make", "left", "right", "numbers"), BROKEN)
def test_a_broken_relation_names_both_sides_and_the_numbers(
    make: Callable[[], object], left: str, right: str, numbers: list[str]
) -> None:
    with pytest.raises(TimeRelationError) as refused:
        make()
    for part in (left, right, *numbers):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FunctionTimes(timeout=0), "function timeout is 0 and must be from 1 to 900"),
        (lambda: FunctionTimes(timeout=True), "function timeout is True and must be a whole number"),
        (lambda: QueueTimes(lease_margin=0), "lease margin is 0"),
        (lambda: QueueTimes(window=301), "batch window is 301"),
        (lambda: QueueTimes(max_receive_count=4), "maxReceiveCount is 4 and must be from 5"),
        (lambda: QueueTimes(retention=59), "queue retention is 59"),
        (lambda: QueueTimes(dead_letter_retention=14 * DAY + 1), "dead-letter queue retention is 1209601"),
        (
            lambda: QueueTimes(timeout=900, window=300, lease_margin=1, max_receive_count=1000),
            "automatic retries",
        ),
        (lambda: AsyncTimes(retries=3), "async retries is 3"),
        (lambda: AsyncTimes(event_age=6 * HOUR + 1), "event age is 21601"),
        (lambda: AsyncTimes(rule_retries=186), "rule retries is 186"),
        (lambda: AsyncTimes(rule_retry_age=59), "rule retry age is 59"),
        (lambda: AsyncTimes(failure_retention=0), "failure retention is 0"),
        (lambda: StreamTimes(window=-1), "batch window is -1"),
        (lambda: StreamTimes(retries=-1), "stream retries is -1"),
        (lambda: StreamTimes(record_age=-1), "record age is -1 and must be from 60"),
        (lambda: StreamTimes(failure_retention=60), "failed records retention is 60"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TimeRelationError) as refused:
        make()
    assert message in str(refused.value)


class TestProviderKeyLifetime:
    def test_longer_than_the_horizon_leaves_nothing_open(self) -> None:
        assert QueueTimes().short_key_lifetime(30 * DAY) is None

    def test_a_keyless_provider_forgets_nothing(self) -> None:
        assert QueueTimes().short_key_lifetime(0) is None

    def test_a_day_is_accepted_and_described(self) -> None:
        assert "forgets keys after 86400 s, the retry horizon is 1555261 s" in str(QueueTimes().short_key_lifetime(DAY))

    def test_shorter_than_the_automatic_retries_is_refused(self) -> None:
        with pytest.raises(TimeRelationError, match=r"key lifetime is 305 s and must be above .* 305 s"):
            QueueTimes().short_key_lifetime(305)
        with pytest.raises(TimeRelationError, match=r"must be above .* 210 s"):
            AsyncTimes().short_key_lifetime(210)
