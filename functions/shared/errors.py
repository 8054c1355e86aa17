"""Errors of the shared code. Their messages name fields, types and numbers, never values from a payload."""


class LoggableError(Exception):
    """Base of every error whose message may be logged: it holds no value that came from an event."""


class DeclarationError(LoggableError):
    """An operation is declared wrong: raised when the module is imported, never during a delivery."""


class NoInvocationError(LoggableError):
    """An operation was called outside `process_queue`, `process_event` and `process_stream`."""


class WrongSourceError(LoggableError):
    """The event did not come from the source this handler is written for; nothing in it was processed."""


class ShapeError(LoggableError):
    """A body, detail or image does not have the declared shape."""


class KeyPartError(LoggableError):
    """A part of the idempotency key is missing, blank, null, too long or of a wrong type."""


class FingerprintMismatchError(LoggableError):
    """The same idempotency key came with another payload. A repeat fails the same way."""


class InProgressError(LoggableError):
    """Another attempt holds the claim. Normal traffic: the source delivers again.

    `seconds_left` is the time until the other attempt's lease ends (0 when it is about to end).
    """

    def __init__(self, message: str, seconds_left: float) -> None:
        super().__init__(message)
        self.seconds_left = seconds_left


class DeadlineError(LoggableError):
    """Less time is left than one call may take; nothing was begun, a later delivery has the whole time."""


class FenceLostError(LoggableError):
    """The effect ran, but this attempt no longer owns the record; the next delivery decides."""


class RecordFormatError(LoggableError):
    """The record was written by a newer version of this code, or its result does not fit the operation."""


class ResultError(LoggableError):
    """The effect returned something that its declared result type cannot store; the claim was released."""


class ResultMissingError(RecordFormatError):
    """The result that the record points to is not there any more; the operation is not run again."""


class ParkedError(LoggableError):
    """The outcome of an earlier attempt is unknown and the effect must not repeat: a person resolves the record."""


class StoreError(LoggableError):
    """The idempotency table did not answer or refused; the cause is attached. Claims fail closed.

    `step` is what could not be done: "claim" means that the effect did not run.
    """

    def __init__(self, message: str, step: str) -> None:
        super().__init__(message)
        self.step = step


class SettingError(LoggableError):
    """An environment variable is missing or malformed."""
