"""Operations: a named, versioned business action that takes effect once for each idempotency key.

    charge_order = Operation("charge-order/v1", key=business_key("orderId"), result=Receipt)

    @charge_order.effect
    def charge(order: Order, key: IdempotencyKey) -> Receipt: ...

Calling the effect claims, runs and completes, or replays the stored result. Effectively once within the
record lifetime, where the effect itself is deduplicated by the key it gets; see each error for what a caller
meets.
"""

import json
import time
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from aws_lambda_powertools.utilities.idempotency.base import IdempotencyHandler
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyValidationError,
)
from botocore.exceptions import ClientError

from shared.aws import dynamodb
from shared.codec import JsonObject, JsonValue, from_json, to_json
from shared.declaration import check_names, check_operation, input_type
from shared.errors import (
    FenceLostError,
    FingerprintMismatchError,
    InProgressError,
    LoggableError,
    RecordFormatError,
    ResultError,
    ShapeError,
    StoreError,
)
from shared.invocation import Invocation, Outcome, current_invocation
from shared.key import IdempotencyKey, KeyBuilder
from shared.once import Once
from shared.records import RECORD_FORMAT, OwnedRecords
from shared.settings import claim_settings

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

# Well under DynamoDB's 400 KB item (fact 6.6), where a completion would fail after the effect.
MAX_RESULT_BYTES = 300_000


class Operation(Generic[ResultT]):
    """Declares an operation. Raises DeclarationError at import for anything that could go wrong later.

    `name` carries its version (`charge-order/v1`) and is the prefix of every record: changing it forgets all
    duplicates. `key` picks the business fields that name one instance. `result` is the type that the effect
    returns and a replay returns again. `fingerprint` names the input fields that must not change for a key
    (default: all). `on_unknown_outcome="retry"`: after a takeover the effect runs again, so it must be safe
    to repeat with its key.
    """

    def __init__(
        self,
        name: str,
        *,
        key: KeyBuilder,
        result: type[ResultT],
        fingerprint: tuple[str, ...] | None = None,
        on_unknown_outcome: str = "retry",
    ) -> None:
        check_operation(name, result, on_unknown_outcome)
        self.name = name
        self.key = key
        self.result = result
        self.fingerprint = fingerprint

    def effect(self, function: Callable[[InputT, IdempotencyKey], ResultT]) -> "Effect[InputT, ResultT]":
        """Make a function `(input dataclass, key) -> result` the effect of this operation."""
        return Effect(self, function)


class Effect(Generic[InputT, ResultT]):
    """The callable that claims, runs and completes, or replays."""

    def __init__(self, operation: Operation[ResultT], function: Callable[[InputT, IdempotencyKey], ResultT]) -> None:
        self.operation = operation
        self.function = function
        self._input = input_type(operation.name, function, operation.result)
        names = check_names(operation.name, self._input, operation.key.names, operation.fingerprint or ())
        self._fingerprint = operation.fingerprint or names

    def __call__(self, value: InputT) -> ResultT:
        """Run the operation once for the key of `value`, or replay.

        Raises InProgressError, FingerprintMismatchError, FenceLostError, RecordFormatError, ResultError,
        StoreError, KeyPartError, or whatever the effect raised (after the release of the claim).
        """
        invocation = current_invocation()
        payload = cast("JsonObject", to_json(self._input, value, self._input.__name__))
        key = self.operation.key.build(self.operation.name, payload)
        # The key's own fields are compared as the key has them: trimmed and NFC-normalised.
        payload.update(zip(self.operation.key.names, key.parts, strict=True))
        fingerprint: JsonObject = {name: payload[name] for name in self._fingerprint}
        return _Attempt(self, key, fingerprint, invocation).run(value)


@Once
def _records(operation: str) -> OwnedRecords:
    """One layer an operation over the one shared client, made at first use (fact 3.1)."""
    return OwnedRecords(operation, claim_settings(), dynamodb())


class _Attempt(Generic[InputT, ResultT]):
    """One attempt at one operation instance: all its state lives here, none in the operation."""

    def __init__(
        self,
        effect: Effect[InputT, ResultT],
        key: IdempotencyKey,
        fingerprint: JsonObject,
        invocation: Invocation,
    ) -> None:
        self._effect = effect
        self._operation = effect.operation
        self._key = key
        self._fingerprint = fingerprint
        self._invocation = invocation
        self._records = _records(effect.operation.name).for_attempt(invocation.context)
        self._started = self._finished = False
        self._error: Exception | None = None

    def run(self, value: InputT) -> ResultT:
        """Claim, then run and complete, or replay; every way out is reported once."""

        def guarded() -> JsonValue:
            if self._error is not None:
                # Powertools tries again after some errors of its own; raised by an effect they must not.
                raise self._error
            self._started = True
            if self._records.taken_over:
                self._report("taken-over")
            try:
                stored = self._stored(self._effect.function(value, self._key))
            except Exception as error:
                self._error = error
                raise
            self._finished = True
            return stored

        handler = IdempotencyHandler(
            function=guarded,
            function_payload={"key": list(self._key.parts), "fingerprint": self._fingerprint},
            config=self._records.config,
            persistence_store=self._records,
            key_prefix=self._operation.name,
            function_args=(),
            function_kwargs={},
        )
        try:
            stored: JsonValue = handler.handle()
        except Exception as error:
            if self._error is not None:
                self._report_release()
                if error is self._error:
                    raise
                raise self._error from error
            translated = self._translated(error)
            # The store's own error stays attached to StoreError; the others say everything themselves.
            raise translated from (error.__cause__ or error if isinstance(translated, StoreError) else None)
        if not self._started:
            return self._replay()
        self._report("executed", taken_over=self._records.taken_over)
        # Through the codec also on the first run: first result and replay are equal by construction.
        return from_json(self._operation.result, stored, "result")

    def _stored(self, result: ResultT) -> JsonValue:
        """Turn the result into what the record keeps, still inside the effect: a failure here releases."""
        try:
            stored = to_json(self._operation.result, result, f"{self._operation.name} result")
        except ShapeError as error:
            raise ResultError(f"{error}: the effect ran, correct what it returns or the declared result") from None
        size = len(json.dumps(stored))
        if size > MAX_RESULT_BYTES:
            raise ResultError(
                f"{self._operation.name} result is {size} bytes of JSON; wanted at most {MAX_RESULT_BYTES}: return ids"
            )
        return stored

    def _replay(self) -> ResultT:
        record = self._records.existing
        try:
            stored: JsonValue = json.loads(record.response_data) if record is not None else None
            result = from_json(self._operation.result, stored, "stored result")
        except (ShapeError, ValueError, TypeError) as error:
            raise self._unfit(str(error) if isinstance(error, ShapeError) else "no JSON") from None
        self._report("replayed")
        return result

    def _translated(self, error: Exception) -> LoggableError:
        """Name what Powertools met. The effect did not run, or ran to its end without being completed."""
        inner = error.__cause__
        if isinstance(error, IdempotencyAlreadyInProgressError):
            return self._in_progress()
        if isinstance(error, IdempotencyValidationError):
            return FingerprintMismatchError(
                f"record {self._key} was claimed with other values of {', '.join(self._fingerprint)}; wanted "
                "the same payload for the same key: a different order needs a different key"
            )
        if isinstance(error, json.JSONDecodeError):
            return self._unfit("no JSON")
        if isinstance(inner, FenceLostError):
            self._report("lost", finished=True)
        if isinstance(inner, (FenceLostError, RecordFormatError)):
            return inner
        step = "complete" if self._finished else "claim"
        code = inner.response["Error"]["Code"] if isinstance(inner, ClientError) else type(inner or error).__name__
        return StoreError(
            f"record {self._key}: could not {step}, the table {self._records.table_name} answered {code}; "
            + ("the effect ran, a retry repeats it" if self._finished else "the effect did not run")
        )

    def _unfit(self, reason: str) -> RecordFormatError:
        return RecordFormatError(
            f"record {self._key} has another result ({reason}); wanted what {self._operation.name} declares: "
            "a changed result needs a new version of the operation"
        )

    def _in_progress(self) -> InProgressError:
        record = self._records.existing
        ends_ms = record.in_progress_expiry_timestamp if record is not None else None
        if ends_ms is None and record is not None and record.expiry_timestamp is not None:
            # Claimed by stock code without a context: held until the record expires.
            ends_ms = record.expiry_timestamp * 1000
        seconds_left = max(0.0, float(ends_ms or 0) / 1000 - time.time())
        self._report("in-progress", seconds_left=round(seconds_left, 3))
        return InProgressError(
            f"record {self._key} is in progress elsewhere for up to {seconds_left:.1f} s; wanted a delivery after that",
            seconds_left,
        )

    def _report_release(self) -> None:
        if self._records.release_error is not None:
            error = self._records.release_error
            self._invocation.count(self._operation.name, "ReleaseFailed")
            self._invocation.log(
                f"{self._operation.name} release failed",
                self._operation.name,
                record_id=self._key.record_id,
                error=type(error).__name__,
            )
        elif self._records.release_lost:
            self._report("lost", finished=False)
        else:
            self._report("released", error=type(self._error).__name__)

    def _report(self, outcome: Outcome, **facts: object) -> None:
        self._invocation.outcome(
            self._operation.name, outcome, self._key.record_id, record_format=RECORD_FORMAT, **facts
        )
