"""Every duration in every template is one of the time module's numbers, and none is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import app
from shared import aws
from stacks.settings import Settings
from stacks.times import CALL_ATTEMPTS, CALL_BACK_OFF, AsyncTimes, QueueTimes, StreamTimes, longest_call
from tests.stacks.synthesis import Stacks, new_app, synthesized

QUEUE, EVENTS, STREAM = QueueTimes(), AsyncTimes(), StreamTimes()
KEY_LIFETIME = Settings().provider_key_lifetime

EXPECTED: dict[str, int | str] = {
    "Queue/Orders VisibilityTimeout": QUEUE.visibility_timeout,
    "Queue/Orders MessageRetentionPeriod": QUEUE.retention,
    "Queue/Orders RedrivePolicy.maxReceiveCount": QUEUE.max_receive_count,
    "Queue/OrdersDeadLetters MessageRetentionPeriod": QUEUE.dead_letter_retention,
    "Queue/ChargeOrder/Function Timeout": QUEUE.timeout,
    "Queue/ChargeOrder/Mapping MaximumBatchingWindowInSeconds": QUEUE.window,
    "Queue/ChargeOrder/Function CALL_TIMEOUT_SECONDS": f"{QUEUE.call_timeout:g}",
    "Queue/ChargeOrder/Function LEASE_MARGIN_SECONDS": str(QUEUE.lease_margin),
    "Queue/ChargeOrder/Function RECORD_LIFETIME_SECONDS": str(QUEUE.record_lifetime),
    "Queue/ChargeOrder/Function PROVIDER_KEY_LIFETIME_SECONDS": str(KEY_LIFETIME),
    "Queue/ChargeOrder/Logs RetentionInDays": 7,
    "Events/UndeliveredEvents MessageRetentionPeriod": EVENTS.failure_retention,
    "Events/FailedReceipts MessageRetentionPeriod": EVENTS.failure_retention,
    "Events/SendReceipt/Function Timeout": EVENTS.timeout,
    "Events/SendReceipt/Function CALL_TIMEOUT_SECONDS": f"{EVENTS.call_timeout:g}",
    "Events/SendReceipt/Function LEASE_MARGIN_SECONDS": str(EVENTS.lease_margin),
    "Events/SendReceipt/Function RECORD_LIFETIME_SECONDS": str(EVENTS.record_lifetime),
    "Events/SendReceipt/Function PROVIDER_KEY_LIFETIME_SECONDS": str(KEY_LIFETIME),
    "Events/SendReceipt/AsyncConfig MaximumRetryAttempts": EVENTS.retries,
    "Events/SendReceipt/AsyncConfig MaximumEventAgeInSeconds": EVENTS.event_age,
    "Events/OrderCharged Targets.RetryPolicy.MaximumRetryAttempts": EVENTS.rule_retries,
    "Events/OrderCharged Targets.RetryPolicy.MaximumEventAgeInSeconds": EVENTS.rule_retry_age,
    "Events/SendReceipt/Logs RetentionInDays": 7,
    "Stream/IndexOrder/Function Timeout": STREAM.timeout,
    "Stream/IndexOrder/Function CALL_TIMEOUT_SECONDS": f"{STREAM.call_timeout:g}",
    "Stream/IndexOrder/Function TOMBSTONE_LIFETIME_SECONDS": str(STREAM.tombstone_lifetime),
    "Stream/IndexOrder/Mapping MaximumBatchingWindowInSeconds": STREAM.window,
    "Stream/IndexOrder/Mapping MaximumRetryAttempts": STREAM.retries,
    "Stream/IndexOrder/Mapping MaximumRecordAgeInSeconds": STREAM.record_age,
    "Stream/FailedRecords LifecycleConfiguration.Rules.ExpirationInDays": STREAM.failure_retention_days,
    "Stream/FailedRecords LifecycleConfiguration.Rules.AbortIncompleteMultipartUpload.DaysAfterInitiation": 1,
    "Stream/IndexOrder/Logs RetentionInDays": 7,
}

NO_DURATION = {"BatchSize", "MemorySize", "MaximumConcurrency", "s3:TlsVersion"}


def durations(stacks: Stacks) -> Iterator[tuple[str, int | str]]:
    """Every number of every template but those that are no duration, and every variable in _SECONDS."""
    for template in stacks.values():
        for resource in template.resources.values():
            path = resource["Metadata"]["aws:cdk:path"].removesuffix("/Resource")
            for name, value in _numbers(resource.get("Properties", {})):
                yield f"{path} {name}", value


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, int | str]]:
    last = name.rpartition(".")[2]
    if isinstance(value, dict):
        for key, inner in value.items():
            known = key.endswith("_SECONDS") or key == "Variables" or name == "Environment"
            yield from _numbers(inner, key if known else f"{name}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner, name)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if last not in NO_DURATION:
            yield name, value  # type: ignore[misc]
    elif name.endswith("_SECONDS"):
        yield name, value


def test_every_duration_equals_the_time_module(sandbox: Stacks) -> None:
    assert dict(durations(sandbox)) == EXPECTED


def test_the_functions_clients_make_the_tries_the_time_module_counts_with() -> None:
    assert aws.ATTEMPTS == CALL_ATTEMPTS
    for read_timeout in (0.4, 2.0):
        waits = aws.connect_timeout_seconds(read_timeout) + read_timeout
        assert CALL_ATTEMPTS * waits + CALL_BACK_OFF == longest_call(read_timeout)


@pytest.mark.parametrize(
    ("setting", "path", "read", "wanted"),
    [
        ({"queue_function_timeout": 3}, "Queue/Orders", lambda found: found["VisibilityTimeout"], 19),
        ({"queue_batch_window": 20}, "Queue/Orders", lambda found: found["VisibilityTimeout"], 80),
        (
            {"queue_max_receive_count": 7},
            "Queue/Orders",
            lambda found: found["RedrivePolicy"]["maxReceiveCount"],
            7,
        ),
        ({"events_function_timeout": 3}, "Events/SendReceipt/Function", lambda found: found["Timeout"], 3),
        ({"stream_function_timeout": 3}, "Stream/IndexOrder/Function", lambda found: found["Timeout"], 3),
        ({"stream_batch_size": 7}, "Stream/IndexOrder/Mapping", lambda found: found["BatchSize"], 7),
        ({"queue_batch_size": 7}, "Queue/ChargeOrder/Mapping", lambda found: found["BatchSize"], 7),
        (
            {"queue_max_concurrency": 7},
            "Queue/ChargeOrder/Mapping",
            lambda found: found["ScalingConfig"]["MaximumConcurrency"],
            7,
        ),
        ({"memory_size": 512}, "Events/SendReceipt/Function", lambda found: found["MemorySize"], 512),
    ],
)
def test_a_setting_reaches_the_template(
    setting: dict[str, int], path: str, read: Callable[[dict[str, Any]], int], wanted: int
) -> None:
    stacks = synthesized(app.build(new_app(), Settings(**setting)))  # type: ignore[arg-type]
    assert read(stacks[path.partition("/")[0]].at(path)) == wanted
