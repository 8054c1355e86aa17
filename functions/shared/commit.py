"""Commit: the business write to an own table and the record in one transaction, so both happen or neither. Optional.

    @commit(place_order)                    # one request; or commit(place_order, claim=True): claim first, two requests
    def place(order: Order, key: IdempotencyKey) -> Commit[Placed]:
        return Commit(Placed(order.order_id), [{"Put": {...}}])

The function only says what to write. Without a claim it also runs for duplicates, and nothing it returns is then used.
"""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from shared.errors import DeclarationError, LoggableError
from shared.key import IdempotencyKey
from shared.operation import Effect, Operation
from shared.records import COMPLETED, Item, OwnedRecords

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

_REFUSED = "ConditionalCheckFailed"
_TEMPORARY = {"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
_PAUSES_SECONDS = (0.05, 0.2, 0.8)


@dataclass(frozen=True)
class Commit(Generic[ResultT]):
    """What to write (entries of TransactWriteItems: Put, Update, Delete, ConditionCheck) and what to answer."""

    result: ResultT
    writes: list[dict[str, Any]]


class NotCommittedError(LoggableError):
    """Nothing was written, neither record nor business data: conflicts or throttles outlasted the retries."""


class CommitRefusedError(NotCommittedError):
    """A condition of a business write did not hold. Declare it in `permanent` where that will never change."""


def commit(
    operation: Operation[ResultT], *, claim: bool = False
) -> Callable[[Callable[[InputT, IdempotencyKey], Commit[ResultT]]], "CommittedEffect[InputT, ResultT]"]:
    """Make a function that returns a `Commit` the effect of an operation. Exactly once within the record lifetime."""
    return lambda function: CommittedEffect(operation, function, claim)


class CommittedEffect(Effect[InputT, ResultT]):
    """Commits, or replays."""

    def __init__(
        self, operation: Operation[ResultT], function: Callable[[InputT, IdempotencyKey], Commit[ResultT]], claim: bool
    ) -> None:
        if operation.parks:
            raise DeclarationError(f"{operation.name}: on_unknown_outcome is 'park'; wanted 'retry', a commit is known")
        super().__init__(operation, function, returned=Commit[operation.result])  # type: ignore[name-defined]
        self._claims = claim

    def __call__(self, value: InputT) -> ResultT:
        """Commit once for the key of `value`, or replay. Also raises CommitRefusedError and NotCommittedError."""
        attempt = self.attempt(value)
        transaction = _Transaction(attempt.records)
        attempt.records.send = transaction

        def run() -> ResultT:
            asked: Commit[ResultT] = self.function(value, attempt.key)
            transaction.writes = asked.writes
            return asked.result

        try:
            if self._claims:
                met = attempt.claim()
            else:
                stored = attempt.storable(run())
                transaction.data = json.dumps(stored, sort_keys=True)
                met = attempt.claim("commit", "a retry commits or replays")
                if met is None and not attempt.records.taken_over:
                    return attempt.executed(stored)
            return attempt.execute(run) if met is None else attempt.replay(met)
        except NotCommittedError as error:
            if error is transaction.refused and (self._claims or attempt.records.taken_over):
                attempt.fail(error)
            raise


@dataclass
class _Transaction:
    """Sends the write of the record that carries the result together with the business writes."""

    records: OwnedRecords
    writes: list[dict[str, Any]] = field(default_factory=list)
    data: str | None = None
    refused: NotCommittedError | None = None

    def __call__(self, method: str, request: Item) -> Any:
        if method == "put_item" and self.data is not None:
            request["Item"].update(self.records.outcome(COMPLETED, self.data))
        elif ":new_data" not in request["ExpressionAttributeValues"] or self.refused:
            return getattr(self.records.client, method)(**request)
        record = {"Put" if method == "put_item" else "Update": request}
        return self._write({"TransactItems": [record, *self.writes], "ClientRequestToken": uuid.uuid4().hex})

    def _write(self, request: Item) -> Any:
        client = self.records.client
        for pause in (*_PAUSES_SECONDS, None):
            try:
                return client.transact_write_items(**request)
            except client.exceptions.TransactionInProgressException:
                codes = ["TransactionInProgress"]
            except client.exceptions.TransactionCanceledException as cancelled:
                reasons = cancelled.response["CancellationReasons"]
                codes = [str(reason.get("Code", "None")) for reason in reasons]
                if codes[0] == _REFUSED:  # the record decides: it replays, whatever the business writes say
                    error = {"Error": {"Code": f"{_REFUSED}Exception"}, "Item": reasons[0].get("Item", {})}
                    raise client.exceptions.ConditionalCheckFailedException(error, "TransactWriteItems") from None
                if _REFUSED in codes:
                    self._refuse(CommitRefusedError, codes, "a condition that holds")
                if not set(codes) <= _TEMPORARY:
                    self._refuse(NotCommittedError, codes, "writes that DynamoDB takes: correct them")
            if pause is not None and self.records.context.get_remaining_time_in_millis() > 2000 * pause:
                time.sleep(pause)
        self._refuse(NotCommittedError, codes, "no conflict: deliver again")
        return None

    def _refuse(self, kind: type[NotCommittedError], codes: list[str], wanted: str) -> None:
        reasons = ", ".join(f"write {number} {code}" for number, code in enumerate(codes) if code != "None")
        self.refused = kind(f"record {self.records.record_id}: nothing was committed ({reasons}); wanted {wanted}")
        raise self.refused
