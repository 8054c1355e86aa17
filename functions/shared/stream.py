"""The stream: one call a handler makes for a batch of a DynamoDB stream, in order."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext
from boto3.dynamodb.types import TypeDeserializer

from shared.batch import BatchResponse, failures, records_of
from shared.errors import InProgressError, ShapeError
from shared.invocation import delivery, invocation

Image = dict[str, Any]
_VIEW_TYPES = ("NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES", "KEYS_ONLY")


@dataclass(frozen=True)
class Change:
    """One change of an item. Values are deserialised: numbers are Decimal, sets are sets, binary is `Binary`.

    `created_at` is when the item changed, in epoch seconds (whole seconds by the stream's own precision).
    `by_service` marks a delete that DynamoDB's TTL made; a replicated TTL delete lacks the mark (C11).
    """

    name: str
    keys: Image
    new_image: Image | None
    old_image: Image | None
    view_type: str
    created_at: float
    by_service: bool

    def require_new_image(self) -> Image:
        """Return the image after the change. Raises ShapeError naming the stream's view type."""
        return self._required("NewImage", self.new_image)

    def require_old_image(self) -> Image:
        """Return the image before the change. Raises ShapeError naming the stream's view type."""
        return self._required("OldImage", self.old_image)

    def _required(self, kind: str, image: Image | None) -> Image:
        if image is None:
            raise ShapeError(
                f"{self.name} record has no {kind}, its StreamViewType is {self.view_type}; wanted "
                "NEW_AND_OLD_IMAGES: change the table's stream"
            )
        return image


def process_stream(
    event: Any, context: LambdaContext, *, operation: str, each: Callable[[Change], object]
) -> BatchResponse:
    """Run `each` on every change in order; stop at the first failure.

    Lambda retries from the lowest reported number on (fact 4.2.4), so going on would put later effects before
    earlier ones. After some success the failing record's sequence number is reported. Where the first record of the
    batch fails its error is raised: only a function error is documented to halve the batch (facts 4.2.3, 4.2.6), and
    a batch that is given up whole takes the good records behind the bad one with it.
    Raises WrongSourceError, before any effect, for anything but a batch of a DynamoDB stream.
    """
    done = 0
    with invocation(context) as running:
        for record in records_of(event, "aws:dynamodb", "SequenceNumber", _sequence_number):
            number = record["dynamodb"]["SequenceNumber"]
            with delivery(running, number) as one:
                try:
                    each(_change(record))
                except Exception as error:
                    if not isinstance(error, InProgressError):  # normal traffic, reported by the operation
                        one.failure(operation, error)
                    if not done:
                        raise
                    return failures(number)
                done += 1
    return failures()


def _sequence_number(record: dict[str, Any]) -> object:
    body = record.get("dynamodb")
    return body.get("SequenceNumber") if isinstance(body, dict) else None


def _change(record: dict[str, Any]) -> Change:
    name, body = record.get("eventName"), record["dynamodb"]
    if name not in ("INSERT", "MODIFY", "REMOVE"):
        raise ShapeError("record has an unknown eventName; wanted INSERT, MODIFY or REMOVE")
    if body.get("StreamViewType") not in _VIEW_TYPES:
        raise ShapeError(f"record has an unknown StreamViewType; wanted one of {', '.join(_VIEW_TYPES)}")
    created = body.get("ApproximateCreationDateTime", 0)
    if isinstance(created, bool) or not isinstance(created, (int, float)):
        raise ShapeError(f"ApproximateCreationDateTime is {type(created).__name__}; wanted epoch seconds")
    identity = record.get("userIdentity") or {}
    return Change(
        name=name,
        keys=_image(body.get("Keys")) or {},
        new_image=_image(body.get("NewImage")),
        old_image=_image(body.get("OldImage")),
        view_type=body["StreamViewType"],
        created_at=float(created),
        by_service=identity.get("type") == "Service" and identity.get("principalId") == "dynamodb.amazonaws.com",
    )


def _image(typed: Any) -> Image | None:
    if typed is None:
        return None
    try:
        return {name: TypeDeserializer().deserialize(_binary_decoded(value)) for name, value in typed.items()}
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        raise ShapeError("image holds a value that is no typed DynamoDB attribute; wanted typed attributes") from None


def _binary_decoded(value: Any) -> Any:
    """Stream events carry binary values as base64 text; everywhere else they are bytes."""
    ((kind, inner),) = value.items()
    if kind == "B":
        return {"B": base64.b64decode(inner, validate=True)}
    if kind == "BS":
        return {"BS": [base64.b64decode(item, validate=True) for item in inner]}
    if kind == "L":
        return {"L": [_binary_decoded(item) for item in inner]}
    if kind == "M":
        return {"M": {name: _binary_decoded(item) for name, item in inner.items()}}
    return value
