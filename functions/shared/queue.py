"""The queue: one call a handler makes for a batch of a standard SQS queue."""

from collections.abc import Callable
from typing import Any, TypeVar

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared.batch import BatchResponse, failures, records_of
from shared.body import is_s3_test_event, parse_json_object, unwrap
from shared.codec import JsonObject
from shared.errors import InProgressError, WrongSourceError
from shared.invocation import Invocation, delivery, invocation
from shared.operation import Effect

InputT = TypeVar("InputT")


def process_queue(
    event: Any, context: LambdaContext, *, each: Effect[InputT, Any], parse: Callable[[JsonObject], InputT]
) -> BatchResponse:
    """Run `each` on the parsed body of every message; report the ids of those that failed.

    Parsing happens inside the boundary of its message, so that one bad body fails alone. All messages failing
    is reported as ids, not raised. Raises WrongSourceError, before any effect, for anything but a batch of a
    standard queue: the whole batch comes back and nothing is lost.
    """
    with invocation(context) as running:
        failed: dict[str, None] = {}  # an ordered set: the same message may come twice in a batch
        for message in _messages(event):
            with delivery(running, message["messageId"]) as one:
                if not _handled(one, message, each, parse):
                    failed[message["messageId"]] = None
    return failures(*failed)


def _handled(
    one: Invocation, message: dict[str, Any], each: Effect[InputT, Any], parse: Callable[[JsonObject], InputT]
) -> bool:
    operation = each.operation.name
    try:
        body = unwrap(parse_json_object(message.get("body"), "body"))
        if is_s3_test_event(body):
            one.count(operation, "TestEventAcknowledged")
            one.log(f"{operation} test event acknowledged", operation)
            return True
        each(parse(body))
    except InProgressError:  # normal traffic, reported by the operation; the message comes back
        return False
    except Exception as error:
        one.failure(operation, error)
        return False
    return True


def _messages(event: Any) -> list[dict[str, Any]]:
    messages = records_of(event, "aws:sqs", "messageId", lambda message: message.get("messageId"))
    if any(str(message.get("eventSourceARN", "")).endswith(".fifo") for message in messages):
        raise WrongSourceError("record comes from a FIFO queue; wanted a standard queue: its order would break")
    return messages
