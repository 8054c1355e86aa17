"""AWS clients: one per execution environment, made at first use, with explicit retries and timeouts.

The SDK's defaults (60 s timeouts, a retry mode that depends on the runtime's boto3; facts 1.5 to 1.8) would
let one stalled call outlive the function's deadline.
"""

import gc
from typing import Any

import boto3
from botocore.config import Config

from shared.once import Once
from shared.settings import call_timeout_seconds

ATTEMPTS = 3
# As many as a batch runs messages at once: a thread without a connection would open and close one a call.
CONNECTIONS = 10


def connect_timeout_seconds(read_timeout: float) -> float:
    """Return the longest wait for a connection: 1 s, in short functions no longer than the wait for an answer.

    The stack's time check counts on it: all tries of a call end before the function does.
    """
    return min(1.0, read_timeout)


@Once
def dynamodb(attempts: int = ATTEMPTS) -> Any:
    """Return the shared DynamoDB client; a call makes at most `attempts` requests. Raises SettingError."""
    return _client("dynamodb", attempts)


@Once
def s3() -> Any:
    """Return the shared S3 client. Raises SettingError."""
    return _client("s3", ATTEMPTS)


def _client(service: str, attempts: int) -> Any:
    read_timeout = call_timeout_seconds()
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=connect_timeout_seconds(read_timeout),
        read_timeout=read_timeout,
        max_pool_connections=CONNECTIONS,
    )
    # The service's model is many thousand new objects and no garbage: looking for some slows a cold start down.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return boto3.client(service, config=config)
    finally:
        if collecting:
            gc.enable()
