"""The async queue: one call a handler makes for an event that an EventBridge rule delivered."""

from collections.abc import Callable
from typing import Any, TypeVar

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared.body import is_eventbridge_envelope
from shared.codec import JsonObject
from shared.errors import InProgressError, WrongSourceError
from shared.invocation import delivery, invocation
from shared.operation import Effect

InputT = TypeVar("InputT")


def process_event(
    event: Any, context: LambdaContext, *, each: Effect[InputT, Any], parse: Callable[[JsonObject], InputT]
) -> None:
    """Run `each` on the parsed detail of an EventBridge event.

    Every exception propagates, InProgressError included: Lambda's async queue delivers again after about 60 s
    and 120 s and then writes the failure record (facts 2.1.1, 2.2). Raises WrongSourceError for any other
    shape.
    """
    with invocation(context) as running:
        event_id, detail = _id_and_detail(event)
        with delivery(running, event_id) as one:
            try:
                each(parse(detail))
            except Exception as error:
                if not isinstance(error, InProgressError):  # normal traffic, reported by the operation
                    one.failure(each.operation.name, error)
                raise


def _id_and_detail(event: Any) -> tuple[str, JsonObject]:
    if not isinstance(event, dict) or not is_eventbridge_envelope(event):
        raise WrongSourceError("event is no EventBridge envelope; wanted one with id, source, detail-type and detail")
    if not isinstance(event["id"], str) or not isinstance(event["detail"], dict):
        raise WrongSourceError(
            f"event has an id of type {type(event['id']).__name__} and a detail of type "
            f"{type(event['detail']).__name__}; wanted str and object"
        )
    return event["id"], event["detail"]
