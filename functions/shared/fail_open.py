"""Fail open: run an effect without a record while the idempotency table cannot be asked. Optional.

Only for work that tolerates duplicates; each use is counted as `FailedOpen` and logged.
"""

from typing import TypeVar

from shared.errors import DeclarationError, StoreError
from shared.operation import Effect

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")


class FailOpen(Effect[InputT, ResultT]):
    """Wraps an effect: `send = FailOpen(send_receipt.effect(...))`, or decorates what `@send_receipt.effect` made."""

    def __init__(self, inner: Effect[InputT, ResultT]) -> None:
        if inner.operation.parks or type(inner) is not Effect:
            raise DeclarationError(
                f"{inner.operation.name}: fail open with park or commit; wanted a plain 'retry' effect"
            )
        super().__init__(inner.operation, inner.function, inner.operation.result)

    def __call__(self, value: InputT) -> ResultT:
        """As `Effect.__call__`, but a claim that the table did not answer does not stop the effect."""
        attempt = self.attempt(value)
        try:
            met = attempt.claim()
        except StoreError as error:
            attempt.report("failed-open", cause=type(error.__cause__).__name__)
            result: ResultT = self.function(value, attempt.key)
            return result
        return attempt.execute(lambda: self.function(value, attempt.key)) if met is None else attempt.replay(met)
