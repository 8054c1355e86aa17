"""Message bodies: strict JSON, and the known envelopes, unwrapped one level (A06, A23, A24, A26)."""

import json
from typing import NoReturn

from shared.codec import JsonObject, JsonValue
from shared.errors import ShapeError


def parse_json_object(text: object, where: str) -> JsonObject:
    """Parse a JSON object by the standard: no NaN, no Infinity, no duplicate names. Raises ShapeError."""
    if not isinstance(text, str):
        raise ShapeError(f"{where} is {type(text).__name__}; wanted the text of a JSON object")
    try:
        found: JsonValue = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        # A JSONDecodeError's message holds a position only, but it keeps the whole text: do not chain it.
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ShapeError(f"{where} is no JSON ({reason}); wanted a JSON object") from None
    if not isinstance(found, dict):
        raise ShapeError(f"{where} is a JSON {type(found).__name__}; wanted a JSON object")
    return found


def unwrap(body: JsonObject) -> JsonObject:
    """Return the business object inside an SNS or EventBridge envelope, or the body. Raises ShapeError.

    One level only: the keys of an operation come from the business object, never from an envelope's id or
    time.
    """
    if body.get("Type") == "Notification" and "TopicArn" in body and "Message" in body:
        return parse_json_object(body["Message"], "SNS Message")
    if is_eventbridge_envelope(body):
        detail = body["detail"]
        if not isinstance(detail, dict):
            raise ShapeError(f"EventBridge detail is {type(detail).__name__}; wanted a JSON object")
        return detail
    return body


def is_eventbridge_envelope(body: JsonObject) -> bool:
    """Tell whether an object is the envelope that EventBridge puts around a detail."""
    return all(name in body for name in ("version", "id", "detail-type", "source", "time", "detail"))


def is_s3_test_event(body: JsonObject) -> bool:
    """Tell whether this is what S3 sends once when a bucket notification is set up (A23), and nothing besides."""
    known = {"Service", "Event", "Time", "Bucket", "RequestId", "HostId"}
    return body.get("Service") == "Amazon S3" and body.get("Event") == "s3:TestEvent" and set(body) <= known


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not standard")


def _unique(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate names")
    return found
