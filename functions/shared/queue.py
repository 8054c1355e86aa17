"""The queue: one call a handler makes for a batch of a standard SQS queue."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from aws_lambda_powertools.utilities.typing import LambdaContext

from shared.aws import CONNECTIONS
from shared.batch import BatchResponse, failures, records_of
from shared.body import is_s3_test_event, parse_json_object, unwrap
from shared.codec import JsonObject
from shared.errors import InProgressError, WrongSourceError
from shared.invocation import Invocation, delivery, invocation
from shared.operation import Effect
from shared.settings import call_timeout_seconds

InputT = TypeVar("InputT")
T = TypeVar("T")

try:
    from shared.concurrent_batch import run_all
except ModuleNotFoundError:  # a copier who wants no threads has deleted it

    def run_all(jobs: Sequence[Callable[[], T]], _at_most: int, /) -> list[T]:
        """Run every job, one after the other."""
        return [job() for job in jobs]


def process_queue(
    event: Any,
    context: LambdaContext,
    *,
    each: Effect[InputT, Any],
    parse: Callable[[JsonObject], InputT],
    at_most: int = CONNECTIONS,
) -> BatchResponse:
    """Run `each` on the parsed body of every message; report the ids of those that failed.

    Up to `at_most` messages (1 to 10) run at once, but never two with the same key: equal ones run once and share what
    became of it. Messages that might not end in time any more are reported untouched, so that none dies half done.
    Parsing happens inside the boundary of its message, so that one bad body fails alone. All messages failing
    is reported as ids, not raised. Raises WrongSourceError, before any effect, for anything but a batch of a
    standard queue: the whole batch comes back and nothing is lost.
    """
    if not 1 <= at_most <= CONNECTIONS:
        raise ValueError(f"at_most is {at_most}; wanted 1 to {CONNECTIONS}, the connections of the client")
    with invocation(context) as running:
        messages = _messages(event)
        batch = _Batch(running, each, parse)
        for message in messages:
            batch.take(message["messageId"], message.get("body"))
        batch.failed.update(*run_all([partial(batch.run, *instance) for instance in batch.instances.items()], at_most))
        # In the order of the batch, and once each: the same message may come twice in a batch.
        return failures(*(name for name in dict.fromkeys(m["messageId"] for m in messages) if name in batch.failed))


class _Batch(Generic[InputT]):
    """The messages of one invocation, by the record that their key names."""

    def __init__(self, running: Invocation, each: Effect[InputT, Any], parse: Callable[[JsonObject], InputT]) -> None:
        self.instances: dict[str, list[tuple[str, InputT, JsonObject]]] = {}
        self.failed: set[str] = set()
        self._running, self._each, self._parse = running, each, parse
        self._operation = each.operation.name
        # A message needs as long as the slowest before it, and at least one call that gets no answer.
        self._seconds_needed = call_timeout_seconds()

    def take(self, message_id: str, text: object) -> None:
        """Parse one message and put it to the others of its key."""
        with delivery(self._running, message_id) as one:
            try:
                body = unwrap(parse_json_object(text, "body"))
                if is_s3_test_event(body):
                    one.count(self._operation, "TestEventAcknowledged")
                    one.log(f"{self._operation} test event acknowledged", self._operation)
                    return
                value = self._parse(body)
                key, fingerprint = self._each.identify(value)
            except Exception as error:
                one.failure(self._operation, error)
                self.failed.add(message_id)
            else:
                self.instances.setdefault(key.record_id, []).append((message_id, value, fingerprint))

    def run(self, record_id: str, messages: list[tuple[str, InputT, JsonObject]]) -> list[str]:
        """Run the messages of one key in their order; return the ids of those that failed."""
        met: list[tuple[str, JsonObject, bool]] = []
        for message_id, value, fingerprint in messages:
            with delivery(self._running, message_id) as one:
                equal = next((entry for entry in met if entry[1] == fingerprint), None)
                if equal is not None:
                    one.outcome(self._operation, "collapsed", record_id, same_as=equal[0])
                handled = self._handled(one, value, record_id) if equal is None else equal[2]
                met.append((message_id, fingerprint, handled))
        return [message_id for message_id, _, handled in met if not handled]

    def _handled(self, one: Invocation, value: InputT, record_id: str) -> bool:
        left, needed = self._seconds_left(), self._seconds_needed
        if left < needed:
            one.outcome(self._operation, "not-started", record_id, seconds_left=left, seconds_needed=needed)
            return False
        try:
            self._each(value)
        except Exception as error:
            if not isinstance(error, InProgressError):  # normal traffic, reported by the operation
                one.failure(self._operation, error)
            return False
        finally:
            # Unlocked: of two that end at once the faster may win, which costs precision only.
            self._seconds_needed = max(self._seconds_needed, left - self._seconds_left())
        return True

    def _seconds_left(self) -> float:
        return self._running.context.get_remaining_time_in_millis() / 1000


def _messages(event: Any) -> list[dict[str, Any]]:
    messages = records_of(event, "aws:sqs", "messageId", lambda message: message.get("messageId"))
    if any(str(message.get("eventSourceARN", "")).endswith(".fifo") for message in messages):
        raise WrongSourceError("record comes from a FIFO queue; wanted a standard queue: its order would break")
    return messages
