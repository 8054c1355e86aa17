"""Asynchronous invocation, and EventBridge rules in front of it (facts 2.1, 2.2, 2.5).

Two layers with two failure paths: EventBridge retries the *delivery* to Lambda and has the rule target's dead-letter
queue; once Lambda accepted the event, Lambda's own queue retries the *function* and has the on-failure destination.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moto.events.models import EventPattern

from retrylab.deliveries import Delivered, Ledger
from retrylab.failure_records import async_failure
from retrylab.invocation import LambdaService, Result
from retrylab.model import AsyncConfig, Model, RuleTarget
from retrylab.parameters import Parameters, back_off
from retrylab.scheduler import Scheduler
from retrylab.sources.queue import QueueBox
from retrylab.trace import Trace

_DEFAULTS = AsyncConfig("no EventInvokeConfig", "$LATEST", 2, 21_600.0, None)
_LAMBDA_WAITS = 2


@dataclass(eq=False)
class _Queued:
    """One event in Lambda's asynchronous queue. The request id stays the same on all attempts (fact 2.1.4)."""

    payload: Any
    request_id: str
    accepted_ns: int
    event: Delivered | None
    attempts: int = 0
    throttles: int = 0
    last: Result | None = None


class AsyncQueue:
    """Lambda's asynchronous queue for one function and qualifier."""

    def __init__(
        self,
        function: str,
        qualifier: str,
        model: Model,
        boxes: dict[str, QueueBox],
        service: LambdaService,
        scheduler: Scheduler,
        trace: Trace,
        parameters: Parameters,
    ) -> None:
        self.function = function
        self.config = model.async_configs.get((function, qualifier), _DEFAULTS)
        self._qualifier = qualifier
        self._function_arn = model.function_at(function).arn
        self._boxes = boxes
        self._service = service
        self._scheduler = scheduler
        self._trace = trace
        self._parameters = parameters

    def accept(self, payload: Any, event: Delivered | None) -> None:
        """Take an event in (the 202 of an `Event` invoke) and start its first attempt."""
        queued = _Queued(payload, str(uuid.uuid4()), self._scheduler.clock.now_ns, event)
        self._scheduler.after(0, lambda: self._attempt(queued))

    def _attempt(self, queued: _Queued) -> None:
        if self._service.throttled(self.function):
            queued.throttles += 1
            given = self._parameters
            wait = back_off(given.async_throttle_base, given.async_throttle_cap, queued.throttles)
            self._say("throttle", "the function is throttled; the event stays in Lambda's queue")
            # A throttle spends no retry; only the age ends it (fact 2.1.2).
            self._again(queued, wait)
            return
        queued.attempts += 1
        if queued.event is not None:
            queued.event.deliveries += 1
        self._say("deliver", f"attempt {queued.attempts} of event {_label(queued)}")
        done = lambda result: self._settle(queued, result)  # noqa: E731
        self._service.invoke(self.function, queued.payload, done, request_id=queued.request_id)

    def _settle(self, queued: _Queued, result: Result) -> None:
        queued.last = result
        if not result.failed:
            if queued.event is not None:
                queued.event.complete()
            return
        if queued.attempts > self.config.retry_attempts:
            self._give_up(queued, "RetriesExhausted")
            return
        first, second = self._parameters.async_first_wait, self._parameters.async_second_wait
        self._again(queued, first if queued.attempts < _LAMBDA_WAITS else second)

    def _again(self, queued: _Queued, wait: float) -> None:
        """Look ahead: an event that would be too old by then is given up now (fact 2.1.3)."""
        if self._scheduler.clock.since(queued.accepted_ns) + wait > self.config.event_age:
            self._give_up(queued, "EventAgeExceeded")
            return
        self._scheduler.after(wait, lambda: self._attempt(queued))

    def _give_up(self, queued: _Queued, condition: str) -> None:
        if self.config.on_failure is None:
            self._say("lost", f"{condition}: event {_label(queued)} is dropped; there is no on-failure destination")
            if queued.event is not None:
                queued.event.lose(f"{condition} and no on-failure destination ({self.config.path})")
            return
        record = async_failure(
            timestamp=self._scheduler.clock.iso(),
            request_id=queued.request_id,
            function_arn=self._function_arn,
            qualifier=self._qualifier,
            condition=condition,
            attempts=queued.attempts,
            payload=queued.payload,
            last=queued.last,
        )
        self._say(
            "failure-record",
            f"{condition} after {queued.attempts} attempts: record to {self.config.on_failure}",
        )
        self._boxes[self.config.on_failure].add(json.dumps(record), _label(queued), None)
        if queued.event is not None:
            queued.event.fail_to(self.config.on_failure, condition)

    def _say(self, kind: str, text: str) -> None:
        self._trace.add(self._scheduler.clock.now, f"async queue {self.function}", kind, text)


class EventBus:
    """An event bus and the rules on it."""

    def __init__(
        self,
        path: str,
        targets: list[RuleTarget],
        queue_for: Callable[[str, str], AsyncQueue],
        boxes: dict[str, QueueBox],
        service: LambdaService,
        scheduler: Scheduler,
        trace: Trace,
        ledger: Ledger,
        parameters: Parameters,
        region: str,
        account: str,
        unreachable_until: dict[str, int],
    ) -> None:
        self.path = path
        self._targets = [(target, EventPattern.load(target.pattern)) for target in targets]
        self._queue_for = queue_for
        self._boxes = boxes
        self._service = service
        self._scheduler = scheduler
        self._trace = trace
        self._ledger = ledger
        self._parameters = parameters
        self._region = region
        self._account = account
        self._unreachable_until = unreachable_until

    def put(self, source: str, detail_type: str, detail: Any, label: str) -> dict[str, Any]:
        """Put an event. Gives the envelope, so that a scenario can deliver the same event again."""
        envelope = {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": detail_type,
            "source": source,
            "account": self._account,
            "time": self._scheduler.clock.iso()[:19] + "Z",
            "region": self._region,
            "resources": [],
            "detail": detail,
        }
        self.put_envelope(envelope, label)
        return envelope

    def put_envelope(self, envelope: dict[str, Any], label: str) -> None:
        """Route an envelope. A rule may fire a target more than once for one event (fact 2.5.4): call it twice."""
        event = self._ledger.send(label, self.path, self._scheduler.clock.now)
        self._say("send", f"{label} is put on the bus")
        matched = [target for target, pattern in self._targets if pattern.matches_event(envelope)]
        if not matched:
            event.state, event.ended = "filtered", "no rule matches"
        for target in matched:
            self._deliver(target, envelope, event, self._scheduler.clock.now_ns, tries=0)

    def _deliver(self, target: RuleTarget, envelope: Any, event: Delivered, since_ns: int, tries: int) -> None:
        clock = self._scheduler.clock
        if clock.now_ns >= self._unreachable_until.get(self.path, 0):
            self._queue_for(target.function, target.qualifier).accept(envelope, event)
            return
        if tries == 0:
            self._say("delivery-error", f"{target.rule} cannot reach Lambda for {event.label}; EventBridge retries")
        wait = back_off(self._parameters.rule_retry_base, self._parameters.rule_retry_cap, tries + 1)
        if tries >= target.retry_attempts:
            self._undeliverable(target, envelope, event, "MaximumRetryAttempts", tries)
        elif clock.since(since_ns) + wait > target.event_age:
            self._undeliverable(target, envelope, event, "MaximumEventAgeInSeconds", tries)
        else:
            self._scheduler.after(wait, lambda: self._deliver(target, envelope, event, since_ns, tries + 1))

    def _undeliverable(self, target: RuleTarget, envelope: Any, event: Delivered, condition: str, tries: int) -> None:
        if target.dead_letters is None:
            self._say("lost", f"{event.label} is dropped: {condition} and {target.rule} has no dead-letter queue")
            event.lose(f"{condition} and no dead-letter queue on {target.rule}")
            return
        attributes = {
            "RULE_ARN": target.rule_arn,
            "TARGET_ARN": target.target_arn,
            "ERROR_CODE": "THROTTLING",
            "EXHAUSTED_RETRY_CONDITION": condition,
            "RETRY_ATTEMPTS": str(tries),
        }
        self._say("dead-letter", f"{event.label} was undeliverable ({condition}): to {target.dead_letters}")
        self._boxes[target.dead_letters].add(json.dumps(envelope), event.label, None, attributes)
        event.fail_to(target.dead_letters, condition)

    def _say(self, kind: str, text: str) -> None:
        self._trace.add(self._scheduler.clock.now, self.path, kind, text)


def _label(queued: _Queued) -> str:
    return queued.event.label if queued.event is not None else queued.request_id
