"""What the measured queue handlers get: environment, context and events."""

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FUNCTIONS = Path(__file__).resolve().parents[1] / "functions"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_LAMBDA_FUNCTION_NAME": "charge-order",
    "POWERTOOLS_SERVICE_NAME": "charge-order",
    "POWERTOOLS_METRICS_NAMESPACE": "RetrySafe",
    "POWERTOOLS_LOG_LEVEL": "INFO",
    "CALL_TIMEOUT_SECONDS": "2",
    "IDEMPOTENCY_TABLE": "records",
    "LEASE_MARGIN_SECONDS": "5",
    "RECORD_LIFETIME_SECONDS": "864000",
    "RESULTS_BUCKET": "results",
    "PROVIDER": "sandbox_provider.client:connect",
    "PROVIDER_TARGET": "payments",
    "PROVIDER_KEY_LIFETIME_SECONDS": "2592000",
}


@dataclass
class Context:
    """A Lambda context with 10 s left from the start, or as asked."""

    seconds: float = 10.0
    aws_request_id: str = "request-1"
    started: float = field(default_factory=time.monotonic)

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds left."""
        return int((self.seconds - (time.monotonic() - self.started)) * 1000)


def prepare() -> None:
    """Make this process an execution environment: variables set, the functions' code importable."""
    os.environ.update(ENVIRONMENT)
    sys.path.insert(0, str(FUNCTIONS))


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Keep log and metric lines off the screen; they are still made and written."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def message(order_id: str, message_id: str) -> dict[str, Any]:
    """One SQS message that asks to charge an order."""
    return {
        "messageId": message_id,
        "receiptHandle": f"rh-{message_id}",
        "body": json.dumps({"orderId": order_id, "amount": "10.00"}),
        "attributes": {"ApproximateReceiveCount": "1"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:111122223333:orders",
        "awsRegion": "us-east-1",
    }


def batch(*order_ids: str) -> dict[str, Any]:
    """One batch; message ids are m0, m1, ..."""
    return {"Records": [message(order_id, f"m{index}") for index, order_id in enumerate(order_ids)]}
