"""How a mapping reads the response of a batch function: the contract of `ReportBatchItemFailures`."""

from __future__ import annotations

from typing import Any

WHOLE_BATCH = None
"""Returned when the response counts as a complete failure."""


def failed_identifiers(response: Any, known: list[str]) -> list[str] | None:
    """The reported identifiers, an empty list for complete success, or WHOLE_BATCH.

    Facts 3.3 and 4.2.5: an absent, null or empty list is success; an empty, null, misnamed or unknown identifier
    fails the whole batch; so does a response that is no object. A list that is no list is inferred to fail, too.
    """
    if response is None or response == "":
        return []
    if not isinstance(response, dict):
        return WHOLE_BATCH
    listed = response.get("batchItemFailures")
    if listed is None:
        return []
    if not isinstance(listed, list):
        return WHOLE_BATCH
    reported: list[str] = []
    for entry in listed:
        identifier = entry.get("itemIdentifier") if isinstance(entry, dict) else None
        if not isinstance(identifier, str) or identifier not in known:
            return WHOLE_BATCH
        if identifier not in reported:
            reported.append(identifier)
    return reported
