"""Numbers that AWS does not publish, or that a real system varies: named, with defaults, in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """What the lab assumes where the documentation gives no number. All times in seconds.

    call_latency: one request to a store or provider and its answer, together.
    init_time: a cold start, before the handler's own clock starts (fact 5.6).
    throttle_backoff, throttle_backoff_cap: between tries of a throttled invoke by a mapping (facts 3.2.3, 3.2.4).
    async_first_wait, async_second_wait: before attempt 2 and 3 of an asynchronous event, measured from the end of
        the failed attempt (facts 2.1.1, 2.1.9).
    async_throttle_base, async_throttle_cap: back-off of a throttled asynchronous event, doubling (fact 2.1.2).
    rule_retry_base, rule_retry_cap: back-off of an EventBridge target that could not be delivered (fact 2.5.1).
    stream_backoff_base, stream_backoff_factor, stream_backoff_cap: between attempts on one shard (fact 4.2.9).
    stream_poll_interval: between polls of a DynamoDB stream shard (fact 4.2.12).
    stale_receipt_deletes: whether a receipt handle that a later receive replaced still deletes a message. SQS says
        that it might not, so the default is the unfavourable answer.
    partial_report_splits: whether a partial batch response that makes no progress (it names the first record) also
        halves the batch. Not documented (fact 4.2.6 speaks of progress only), so the default is the unfavourable
        answer: the batch stays whole, and is given up whole.
    """

    call_latency: float = 0.010
    init_time: float = 0.250
    throttle_backoff: float = 1.0
    throttle_backoff_cap: float = 20.0
    async_first_wait: float = 60.0
    async_second_wait: float = 120.0
    async_throttle_base: float = 1.0
    async_throttle_cap: float = 300.0
    rule_retry_base: float = 1.0
    rule_retry_cap: float = 300.0
    stream_backoff_base: float = 0.5
    stream_backoff_factor: float = 2.0
    stream_backoff_cap: float = 60.0
    stream_poll_interval: float = 0.25
    stale_receipt_deletes: bool = False
    partial_report_splits: bool = False


def back_off(base: float, cap: float, failures: int, factor: float = 2.0) -> float:
    """Seconds to wait after this many failures in a row (from 1): growing by `factor`, never above `cap`."""
    wait = base
    for _ in range(failures - 1):
        if wait >= cap:
            break
        wait *= factor
    return min(wait, cap)
