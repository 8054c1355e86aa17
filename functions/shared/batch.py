"""What queue and stream batches share: the check of their shape, and the partial batch response."""

import re
from collections.abc import Callable
from typing import Any, TypedDict

from shared.errors import WrongSourceError

_SOURCE = re.compile(r"aws:[a-z0-9]{1,20}")


class ItemFailure(TypedDict):
    """One delivery to repeat: a message id, or a sequence number of a stream."""

    itemIdentifier: str


class BatchResponse(TypedDict):
    """The partial batch response, exactly as the mapping wants it (fact 3.3)."""

    batchItemFailures: list[ItemFailure]


def failures(*identifiers: str) -> BatchResponse:
    """Report these deliveries as failed; none means that the whole batch succeeded."""
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in identifiers]}


def records_of(
    event: Any, source: str, id_name: str, id_of: Callable[[dict[str, Any]], object]
) -> list[dict[str, Any]]:
    """Return a batch's records, when each comes from `source` and has an id. Raises WrongSourceError."""
    records = event.get("Records") if isinstance(event, dict) else None
    if not isinstance(records, list) or not records:
        raise WrongSourceError(f"event has no list of Records; wanted a batch of {source!r}: check the trigger")
    for record in records:
        found = record.get("eventSource") if isinstance(record, dict) else None
        if found != source:
            # Anything that does not look like a source may be data, and errors are logged.
            shown = repr(found) if isinstance(found, str) and _SOURCE.fullmatch(found) else "no known source"
            raise WrongSourceError(f"record comes from {shown}; wanted {source!r}: use that source's call")
        identifier = id_of(record)
        if not isinstance(identifier, str) or not identifier:
            raise WrongSourceError(f"record has no {id_name}; wanted one: no failure could be reported")
    return records
