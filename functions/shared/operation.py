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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, NoReturn, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError

from shared import errors
from shared.aws import dynamodb
from shared.codec import JsonObject, JsonValue, from_json, to_json
from shared.declaration import Errors, ResultCache, ResultStore, check_names, check_operation, input_type
from shared.invocation import Invocation, current_invocation
from shared.key import IdempotencyKey, KeyBuilder
from shared.once import Once
from shared.records import COMPLETED, COMPLETED_APART, DONE, FAILED, OPEN, PARKED, RECORD_FORMAT, Item, OwnedRecords
from shared.settings import call_timeout_seconds, claim_settings, key_lifetime_seconds

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

# Well under DynamoDB's 400 KB item (fact 6.6), where a completion would fail after the effect.
MAX_RESULT_BYTES = 300_000


@dataclass(frozen=True)
class Operation(Generic[ResultT]):
    """Declares an operation. Raises DeclarationError at import for anything that could go wrong later.

    `name` carries its version (`charge-order/v1`) and is the prefix of every record: changing it forgets all
    duplicates. `key` picks the business fields that name one instance. `result` is the type that the effect
    returns and a replay returns again. `fingerprint` names the input fields that must not change for a key
    (default: all).

    `on_unknown_outcome="retry"`: after a takeover the effect runs again, so it must be safe to repeat with its key;
    once the provider may have forgotten that key the operation parks. `"park"`: the effect is never repeated; every
    error of it parks, unless its class is in `did_not_happen`. Errors in `permanent` are remembered and replayed.
    `large_results` and `cache` take a `LargeResults` and a `WarmCache`.
    """

    name: str
    _: KW_ONLY
    key: KeyBuilder
    result: type[ResultT]
    fingerprint: tuple[str, ...] | None = None
    on_unknown_outcome: str = "retry"
    did_not_happen: Errors = ()
    permanent: Errors = ()
    large_results: ResultStore | None = None
    cache: ResultCache | None = None

    def __post_init__(self) -> None:
        check_operation(self.name, self.result, self.on_unknown_outcome, self.did_not_happen, self.permanent)

    @property
    def parks(self) -> bool:
        """Whether the effect must not repeat."""
        return self.on_unknown_outcome == "park"

    def effect(self, function: Callable[[InputT, IdempotencyKey], ResultT]) -> "Effect[InputT, ResultT]":
        """Make a function `(input dataclass, key) -> result` the effect of this operation."""
        return Effect(self, function, self.result)


class Effect(Generic[InputT, ResultT]):
    """The callable that claims, runs and completes, or replays. `returned` is what the function itself returns."""

    def __init__(self, operation: Operation[ResultT], function: Callable[..., Any], returned: Any) -> None:
        self.operation = operation
        self.function = function
        self._input = input_type(operation.name, function, returned)
        names = check_names(operation.name, self._input, operation.key, operation.fingerprint or ())
        self._fingerprint = operation.fingerprint or names

    def __call__(self, value: InputT) -> ResultT:
        """Run the operation once for the key of `value`, or replay.

        Raises InProgressError, FingerprintMismatchError, FenceLostError, ParkedError, RecordFormatError, ResultError,
        StoreError, KeyPartError, or whatever the effect raised (after the release of the claim, or remembered).
        """
        attempt = self.attempt(value)
        met = attempt.claim()
        return attempt.execute(lambda: self.function(value, attempt.key)) if met is None else attempt.replay(met)

    def attempt(self, value: InputT) -> "Attempt[ResultT]":
        """Begin an attempt. Raises KeyPartError, ShapeError, NoInvocationError, DeadlineError; nothing is sent yet."""
        invocation = current_invocation()
        left, wanted = invocation.context.get_remaining_time_in_millis() / 1000, call_timeout_seconds()
        if left < wanted:
            raise errors.DeadlineError(
                f"{left:.1f} s are left; wanted {wanted} s, what one call may take: deliver again"
            )
        key, fingerprint = self.identify(value)
        self.operation.key.refuse_delivery(key, invocation.delivery_id, invocation.context.aws_request_id)
        return Attempt(self.operation, key, fingerprint, invocation)

    def identify(self, value: InputT) -> tuple[IdempotencyKey, JsonObject]:
        """Return the key of `value` and the fields that must not change for it. Raises KeyPartError, ShapeError."""
        payload = cast("JsonObject", to_json(self._input, value, self._input.__name__))
        key = self.operation.key.build(self.operation.name, payload)
        # The key's own fields are compared as the key has them: trimmed and NFC-normalised.
        payload.update(self.operation.key.normalised(key))
        return key, {name: payload[name] for name in self._fingerprint}


@Once
def _records(operation: str) -> OwnedRecords:
    """One layer an operation over the one shared client, made at first use (fact 3.1)."""
    return OwnedRecords(operation, claim_settings(), key_lifetime_seconds(), dynamodb())


@dataclass
class Attempt(Generic[ResultT]):
    """One attempt at one operation instance: all its state lives here, none in the operation."""

    operation: Operation[ResultT]
    key: IdempotencyKey
    fingerprint: JsonObject
    invocation: Invocation

    def __post_init__(self) -> None:
        operation = self.operation
        self.data: JsonObject = {"key": list(self.key.parts), "fingerprint": self.fingerprint}
        records = _records(operation.name)
        self.records = records.for_attempt(self.invocation.context, self.data, operation.parks, operation.large_results)

    def claim(self, step: str = "claim", so: str = "the effect did not run") -> Item | None:
        """Claim: None when the effect may run, else the record that holds an outcome. Raises as `Effect.__call__`."""
        met = self.operation.cache.get(self.key.record_id) if self.operation.cache else None
        with self._asking(step, so):
            if met is None:
                self.records.save_inprogress(data=self.data, remaining_time_in_millis=0)
                met = self.records.met
            while met is not None and not self._is_done(met):
                met = self.records.take_over(met)
        return met

    def _is_done(self, met: Item) -> bool:
        """Tell a stored outcome from a claim that may be taken over; raise for everything else."""
        status, lease = met.get("status", {}).get("S"), met.get("in_progress_expiration", {}).get("N")
        found = int(met.get("format", {"N": "0"})["N"])
        if met and (found > RECORD_FORMAT or status not in OPEN + DONE):
            raise errors.RecordFormatError(
                f"record {self.key} has format {found} and status {status}; wanted format {RECORD_FORMAT} or lower "
                "and a known status: deploy the version that wrote it"
            )
        # A stock record written without payload validation has nothing to compare and is honoured.
        if met.get("validation", {"S": self.records.validation}) != {"S": self.records.validation}:
            raise errors.FingerprintMismatchError(
                f"record {self.key} was claimed with other values of {', '.join(self.fingerprint)}; wanted the same "
                "payload for the same key: a different order needs a different key"
            )
        if status in DONE:
            return True
        # Claimed by stock code without a context: held until the record expires. `{}`: gone meanwhile, deliver again.
        ends = float(lease) / 1000 if lease else float(met.get("expiration", {"N": 0})["N"])
        left = max(0.0, ends - time.time())
        if status != PARKED and (left or not lease):
            self.report("in-progress", seconds_left=round(left, 3))
            raise errors.InProgressError(
                f"record {self.key} is in progress elsewhere for up to {left:.1f} s; wanted a delivery after that", left
            )
        if status == PARKED or self.records.must_park(met):
            if status != PARKED:
                self.records.park(met)
            self._park()
        return False

    def execute(self, run: Callable[[], ResultT]) -> ResultT:
        """Run what has the effect, then complete."""
        if self.records.taken_over:
            self.report("taken-over")
        try:
            stored = self.storable(run())
        except Exception as error:
            self.fail(error)
        try:
            with self._asking(
                "complete", f"the effect ran, a retry {'parks' if self.operation.parks else 'repeats it'}"
            ):
                self.records.save_success(data=self.data, result=cast("Any", stored))
        except errors.FenceLostError:
            self.report("lost", finished=True)
            raise
        return self.executed(stored)

    def executed(self, stored: JsonValue) -> ResultT:
        """Report the completion and return the result as a replay would, so that both are equal by construction."""
        self.report("executed", taken_over=self.records.taken_over)
        self._keep_warm(COMPLETED, json.dumps(stored), str(self.records._get_expiry_timestamp()))
        return from_json(self.operation.result, stored, "result")

    def storable(self, result: ResultT) -> JsonValue:
        """Turn the result into what the record keeps, still inside the effect: a failure here releases or parks."""
        name = f"{self.operation.name} result"
        try:
            stored = to_json(self.operation.result, result, name)
        except errors.ShapeError as error:
            raise errors.ResultError(f"{error}: the effect ran, correct what it returns or its declaration") from None
        size = len(json.dumps(stored))
        if size > MAX_RESULT_BYTES and self.operation.large_results is None:
            raise errors.ResultError(f"{name} is {size} bytes of JSON; wanted at most {MAX_RESULT_BYTES}: return ids")
        return stored

    def fail(self, error: Exception) -> NoReturn:
        """Release, remember or park after an error of the effect, and raise it: the store's never masks it."""
        name, remembered = type(error).__name__, isinstance(error, self.operation.permanent)
        parked = self.operation.parks and not remembered and not isinstance(error, self.operation.did_not_happen)
        try:
            if remembered:
                self.records.settle(FAILED, json.dumps({"error": name, "message": str(error)}))
            elif parked:
                self.records.settle(PARKED)
            else:
                self.records.delete_record(data=self.data, exception=error)
            if not parked:
                self.report("remembered" if remembered else "released", error=name)
        except errors.FenceLostError:
            self.report("lost", finished=False)
        except (ClientError, BotoCoreError) as store:
            self.report("release-failed", error=type(store).__name__)
        if parked:
            self._park(error)
        raise error

    def _park(self, error: Exception | None = None) -> NoReturn:
        self.report("parked", error=type(error).__name__)
        raise errors.ParkedError(
            f"record {self.key} is parked, the outcome of its effect is unknown; wanted a person to resolve it: the "
            "event goes to its failure path"
        ) from error

    def replay(self, met: Item) -> ResultT:
        """Return the stored result, or raise the remembered failure. Raises RecordFormatError if it does not fit."""
        status, data = met["status"]["S"], met.get("data", {"S": ""})["S"]
        if status == COMPLETED_APART and self.operation.large_results is not None:
            with self._asking("read the result apart of", "the effect ran earlier"):
                status, data = COMPLETED, self.operation.large_results.fetch(data)
        try:
            stored = json.loads(data)
            if status == FAILED:
                failures = {declared.__name__: declared for declared in self.operation.permanent}
                failure = failures[stored["error"]](stored["message"])
            else:
                result = from_json(self.operation.result, stored, "stored result")
        except (errors.ShapeError, ValueError, TypeError, KeyError) as error:
            why = error if isinstance(error, errors.ShapeError) else "no JSON"
            raise errors.RecordFormatError(
                f"record {self.key} has another result ({why}); wanted what {self.operation.name} declares: "
                "a changed result needs a new version of the operation"
            ) from None
        self.report("replayed")
        self._keep_warm(status, data, met["expiration"]["N"])
        if status == FAILED:
            raise failure
        return result

    def _keep_warm(self, status: str, data: str, expiration: str) -> None:
        if self.operation.cache:
            attributes = {"status": {"S": status}, "data": {"S": data}, "expiration": {"N": expiration}}
            self.operation.cache.put(self.key.record_id, {**attributes, "validation": {"S": self.records.validation}})

    @contextmanager
    def _asking(self, step: str, so: str) -> Iterator[None]:
        """Name what a store did not do, and what that means for the effect."""
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
            table = self.records.table_name
            raise errors.StoreError(
                f"record {self.key}: could not {step}, the table {table} answered {code}; {so}", step
            ) from error

    def report(self, outcome: str, **facts: object) -> None:
        """Log and count what became of this attempt."""
        name, record_id = self.operation.name, self.key.record_id
        self.invocation.outcome(name, outcome, record_id, record_format=RECORD_FORMAT, **facts)
