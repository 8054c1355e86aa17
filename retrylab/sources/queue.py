"""A standard SQS queue and its event source mapping (facts 3.1 to 3.3)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from retrylab.deliveries import Delivered, Ledger
from retrylab.invocation import LambdaService, Result
from retrylab.model import Queue, QueueMapping
from retrylab.parameters import Parameters, back_off
from retrylab.responses import WHOLE_BATCH, failed_identifiers
from retrylab.scheduler import Event, Scheduler
from retrylab.trace import Trace


@dataclass(eq=False)
class Message:
    """A message in a queue. Times in virtual nanoseconds or wall milliseconds; `receipt` names the latest receive."""

    message_id: str
    body: str
    sent_ns: int
    sent_ms: int
    label: str
    attributes: dict[str, Any] = field(default_factory=dict)
    event: Delivered | None = None
    receive_count: int = 0
    first_received_ms: int = 0
    visible_ns: int = 0
    receipt: str = ""
    expiry: Event | None = None


class QueueBox:
    """The messages of one queue: visibility, receive count, dead letters, retention.

    The enqueue time is kept on the move to a dead-letter queue, so time already spent counts (fact 3.2.7).
    """

    def __init__(
        self,
        queue: Queue,
        scheduler: Scheduler,
        trace: Trace,
        identify: Callable[[], str],
        boxes: dict[str, QueueBox],
    ) -> None:
        self.queue = queue
        self.messages: list[Message] = []
        self.on_visible: Callable[[], None] = lambda: None
        self._scheduler = scheduler
        self._trace = trace
        self._identify = identify
        self._boxes = boxes

    def add(self, body: str, label: str, event: Delivered | None, attributes: dict[str, Any] | None = None) -> Message:
        clock = self._scheduler.clock
        message = Message(self._identify(), body, clock.now_ns, clock.wall_ms, label, attributes or {}, event)
        self._take_in(message, delay=self.queue.delay)
        return message

    def _take_in(self, message: Message, delay: float) -> None:
        clock = self._scheduler.clock
        message.visible_ns = clock.in_ns(delay)
        self.messages.append(message)
        left = self.queue.retention - clock.since(message.sent_ns)
        message.expiry = self._scheduler.after(max(0.0, left), lambda: self._expire(message), background=True)
        self._scheduler.after(delay, self.on_visible)

    def receive(self, limit: int, *, again: Message | None = None) -> list[tuple[Message, str]]:
        """Take up to `limit` visible messages; ones received too often already move to the dead letters instead.

        again: deliver this message although it is in flight, as a standard queue may (fact 3.2.12).
        """
        clock = self._scheduler.clock
        taken: list[tuple[Message, str]] = []
        candidates = [again] if again else [m for m in self.messages if m.visible_ns <= clock.now_ns]
        for message in candidates:
            if len(taken) == limit:
                break
            maximum = self.queue.max_receive_count
            if maximum is not None and message.receive_count >= maximum:
                self._dead_letter(message)
                continue
            message.receive_count += 1
            message.first_received_ms = message.first_received_ms or clock.wall_ms
            message.visible_ns = clock.in_ns(self.queue.visibility_timeout)
            message.receipt = f"receipt-{message.message_id}-{message.receive_count}"
            taken.append((message, message.receipt))
            self._scheduler.after(self.queue.visibility_timeout, self.on_visible)
        return taken

    def delete(self, message: Message, receipt: str, *, stale_deletes: bool) -> bool:
        """Delete by receipt handle. Says whether the message is gone."""
        if message not in self.messages:
            return True
        if receipt != message.receipt and not stale_deletes:
            return False
        self._remove(message)
        return True

    def _remove(self, message: Message) -> None:
        self.messages.remove(message)
        if message.expiry is not None:
            message.expiry.cancel()

    def _dead_letter(self, message: Message) -> None:
        self._remove(message)
        assert self.queue.dead_letters is not None
        why = f"received {message.receive_count} times"
        self._trace.add(
            self._scheduler.clock.now, self.queue.path, "dead-letter",
            f"{message.label} moves to {self.queue.dead_letters}: {why}",
        )  # fmt: skip
        if message.event is not None:
            message.event.fail_to(self.queue.dead_letters, why)
        self._boxes[self.queue.dead_letters]._take_in(message, delay=0.0)

    def _expire(self, message: Message) -> None:
        if message not in self.messages:
            return
        self.messages.remove(message)
        why = f"{self.queue.path} retention of {self.queue.retention:g} s ran out"
        self._trace.add(self._scheduler.clock.now, self.queue.path, "expired", f"{message.label} is gone: {why}")
        if message.event is not None:
            message.event.lose(why)


@dataclass(eq=False)
class _Batch:
    taken: list[tuple[Message, str]]
    tries: int = 0


class QueueSource:
    """The event source mapping of a queue: polls, batches, invokes, deletes."""

    def __init__(
        self,
        mapping: QueueMapping,
        box: QueueBox,
        service: LambdaService,
        scheduler: Scheduler,
        trace: Trace,
        ledger: Ledger,
        parameters: Parameters,
    ) -> None:
        self.mapping = mapping
        self.box = box
        self._service = service
        self._scheduler = scheduler
        self._trace = trace
        self._ledger = ledger
        self._parameters = parameters
        self._running = 0
        self._gathering: _Batch | None = None
        self._in_hand: dict[Message, int] = {}
        self._function_timeout = service.timeout_of(mapping.function)
        self.findings: list[str] = []
        self._expected_overlap: set[Message] = set()
        box.on_visible = self.poll

    def send(self, body: Any, label: str) -> Message:
        """Put a message on the queue; a body that is no string is sent as JSON."""
        text = body if isinstance(body, str) else json.dumps(body)
        event = self._ledger.send(label, self.box.queue.path, self._scheduler.clock.now)
        self._say("send", f"{label} is sent")
        return self.box.add(text, label, event)

    def deliver_again(self, message: Message) -> None:
        """Deliver a copy of a message that is still in flight, with no error anywhere (fact 3.2.12)."""
        self._say("duplicate", f"{message.label} is delivered once more, though nothing failed")
        self._expected_overlap.add(message)
        self._invoke(_Batch(self.box.receive(1, again=message)))

    def poll(self) -> None:
        """Receive what is visible, unless the mapping already runs as many batches as it may (fact 3.2.5)."""
        limit = self.mapping.maximum_concurrency
        while limit is None or self._running < limit:
            if self._gathering is not None:
                room = self.mapping.batch_size - len(self._gathering.taken)
                self._gathering.taken += self.box.receive(room)
                if len(self._gathering.taken) == self.mapping.batch_size:
                    self._close(self._gathering)
                    continue
                return
            taken = self.box.receive(self.mapping.batch_size)
            if not taken:
                return
            batch = _Batch(taken)
            if len(taken) == self.mapping.batch_size or not self.mapping.window:
                self._invoke(batch)
            else:
                self._gathering = batch
                self._scheduler.after(self.mapping.window, lambda batch=batch: self._close(batch))  # type: ignore[misc]

    def _close(self, batch: _Batch) -> None:
        if self._gathering is batch:
            self._gathering = None
            self._invoke(batch)

    def _invoke(self, batch: _Batch) -> None:
        if batch.tries == 0:
            self._running += 1
        batch.tries += 1
        now_ns = self._scheduler.clock.now_ns
        batch.taken = [(m, r) for m, r in batch.taken if m.visible_ns > now_ns and m.receipt == r]
        if not batch.taken:
            self._say("throttle", "gives the batch up: its visibility timeout ran out before the function ran")
            self._note_waste()
            self._running -= 1
            self.poll()
            return
        if self._service.throttled(self.mapping.function):
            self._hold(batch)
            return
        for message, _ in batch.taken:
            self._note_overlap(message)
            self._in_hand[message] = self._in_hand.get(message, 0) + 1
            if message.event is not None:
                message.event.deliveries += 1
        labels = ", ".join(f"{m.label} (receive {m.receive_count})" for m, _ in batch.taken)
        self._say("deliver", f"delivers {labels}")
        payload = {"Records": [self._record(message, receipt) for message, receipt in batch.taken]}
        self._service.invoke(self.mapping.function, payload, lambda result: self._settle(batch, result))

    def _hold(self, batch: _Batch) -> None:
        """A throttled invoke: keep trying the same batch until its visibility ends (fact 3.2.4)."""
        if batch.tries == 1:
            self._say("throttle", "the function is throttled; the batch waits in the mapping's hands")
        wait = back_off(self._parameters.throttle_backoff, self._parameters.throttle_backoff_cap, batch.tries)
        ends = -self._scheduler.clock.since(min(m.visible_ns for m, _ in batch.taken))
        self._scheduler.after(min(wait, ends), lambda: self._invoke(batch))

    @property
    def _wanted_visibility(self) -> float:
        return 6 * self._function_timeout + self.mapping.window

    def _too_short(self) -> str:
        found, timeout, window = (
            self.box.queue.visibility_timeout,
            self._function_timeout,
            self.mapping.window,
        )
        return (
            f"VisibilityTimeout {found:g} s is too short, wanted at least 6 x {timeout:g} s function timeout "
            f"+ {window:g} s batch window = {self._wanted_visibility:g} s (fact 3.1.4)"
        )

    def _note_overlap(self, message: Message) -> None:
        if self._in_hand.get(message, 0) and message not in self._expected_overlap:
            self.findings.append(
                f"{self.box.queue.path}: {message.label} was delivered again at {self._scheduler.clock.now:.1f} s "
                f"while its earlier delivery was still running: {self._too_short()}"
            )

    def _note_waste(self) -> None:
        """A throttled batch that loses its receive is the rule's work only where the visibility is long enough."""
        if self.box.queue.visibility_timeout < self._wanted_visibility:
            self.findings.append(
                f"{self.box.queue.path}: a batch used up a receive at {self._scheduler.clock.now:.1f} s "
                f"although the function never ran: {self._too_short()}"
            )

    def _settle(self, batch: _Batch, result: Result) -> None:
        """Delete what succeeded; leave the rest to its visibility timeout (facts 3.2.1, 3.3)."""
        self._running -= 1
        ids = [message.message_id for message, _ in batch.taken]
        failed: list[str] | None = WHOLE_BATCH
        if not result.failed:
            failed = failed_identifiers(result.payload, ids) if self.mapping.partial_responses else []
        for message, receipt in batch.taken:
            self._in_hand[message] -= 1
            if failed is WHOLE_BATCH or message.message_id in failed:
                continue
            gone = self.box.delete(message, receipt, stale_deletes=self._parameters.stale_receipt_deletes)
            if message.event is not None:
                message.event.complete()
            if not gone:
                self._say("stale", f"{message.label} was done, but its receipt is stale: it will come again")
        self.poll()

    def _record(self, message: Message, receipt: str) -> dict[str, Any]:
        queue = self.box.queue
        return {
            "messageId": message.message_id,
            "receiptHandle": receipt,
            "body": message.body,
            "attributes": {
                "ApproximateReceiveCount": str(message.receive_count),
                "SentTimestamp": str(message.sent_ms),
                "SenderId": "AIDALABSENDER",
                "ApproximateFirstReceiveTimestamp": str(message.first_received_ms),
            },
            "messageAttributes": {},
            "md5OfBody": hashlib.md5(message.body.encode(), usedforsecurity=False).hexdigest(),
            "eventSource": "aws:sqs",
            "eventSourceARN": queue.arn,
            "awsRegion": queue.arn.split(":")[3],
        }

    def _say(self, kind: str, text: str) -> None:
        self._trace.add(self._scheduler.clock.now, self.box.queue.path, kind, text)
