"""A DynamoDB stream and its event source mapping: one ordered shard (facts 4.1 to 4.3)."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import dataclass
from typing import Any

from retrylab.clock import EPOCH, NANOSECONDS
from retrylab.deliveries import Delivered, Ledger
from retrylab.failure_records import stream_failure
from retrylab.invocation import LambdaService, Result
from retrylab.model import StreamMapping, Table
from retrylab.parameters import Parameters, back_off
from retrylab.responses import WHOLE_BATCH, failed_identifiers
from retrylab.scheduler import Event, Scheduler
from retrylab.sources.queue import QueueBox
from retrylab.store import Store
from retrylab.trace import Trace

STREAM_RETENTION = 86_400.0
"""Seconds that a DynamoDB stream keeps a record; not adjustable (fact 4.2.14)."""

SHARD = "shardId-00000001767225600000-1a2b3c4d"


@dataclass(eq=False)
class _Entry:
    """One record of the shard."""

    record: dict[str, Any]
    sequence: str
    arrived_ns: int
    event: Delivered


@dataclass
class _Part:
    """A run of records that is delivered together. `attempts` counts failures that spend the retry quota."""

    entries: list[_Entry]
    attempts: int = 0
    invokes: int = 0
    throttles: int = 0
    splits: int = 0


class StreamSource:
    """The event source mapping of a table's stream. Works through the shard in order, one batch at a time."""

    def __init__(
        self,
        mapping: StreamMapping,
        table: Table,
        store: Store,
        boxes: dict[str, QueueBox],
        buckets: dict[str, str],
        service: LambdaService,
        scheduler: Scheduler,
        trace: Trace,
        ledger: Ledger,
        parameters: Parameters,
        region: str,
    ) -> None:
        self.mapping = mapping
        self.table = table
        self._store = store
        self._boxes = boxes
        self._buckets = buckets
        self._service = service
        self._scheduler = scheduler
        self._trace = trace
        self._ledger = ledger
        self._parameters = parameters
        self._region = region
        self._seen = 0
        self._changes: dict[str, int] = {}
        self._ahead: list[_Entry] = []
        self._parts: list[_Part] = []
        self._busy = False
        self._window: Event | None = None

    def look(self) -> None:
        """Take over what the table has written to its stream since the last look."""
        records = self._store.stream_records(self.table)
        for raw in records[self._seen :]:
            record = self._event_record(raw)
            key = _item_key(record)
            self._changes[key] = self._changes.get(key, 0) + 1
            label = f"{key}#{self._changes[key]}"
            event = self._ledger.send(label, f"{self.table.path} stream", self._scheduler.clock.now)
            self._say("send", f"{label} enters the stream")
            entry = _Entry(record, record["dynamodb"]["SequenceNumber"], self._scheduler.clock.now_ns, event)
            self._ahead.append(entry)
            self._scheduler.after(STREAM_RETENTION, lambda entry=entry: self._expire(entry), background=True)  # type: ignore[misc]
        if len(records) > self._seen:
            self._seen = len(records)
            self._scheduler.after(self._parameters.stream_poll_interval, self._poll)

    def replay(self, events: list[dict[str, Any]]) -> None:
        """Deliver records again from outside the shard, as a redrive of a failure record does."""
        self._say("redrive", f"{len(events)} record(s) are delivered again")
        self._service.invoke(self.mapping.function, {"Records": events}, lambda _: None)

    def _poll(self) -> None:
        if self._busy:
            return
        if not self._parts:
            if not self._ahead:
                return
            full = len(self._ahead) >= self.mapping.batch_size
            if not full and self.mapping.window:
                if self._window is None:
                    self._window = self._scheduler.after(self.mapping.window, self._window_over)
                return
            self._take_batch()
        self._deliver()

    def _window_over(self) -> None:
        self._window = None
        if not self._busy and not self._parts and self._ahead:
            self._take_batch()
            self._deliver()

    def _take_batch(self) -> None:
        if self._window is not None:
            self._window.cancel()
            self._window = None
        batch, self._ahead = self._ahead[: self.mapping.batch_size], self._ahead[self.mapping.batch_size :]
        self._parts = [_Part(batch)]

    def _deliver(self) -> None:
        part = self._parts[0]
        self._drop_aged(part)
        if not part.entries:
            self._next()
            return
        self._busy = True
        if self._service.throttled(self.mapping.function):
            # A throttle spends no attempt (fact 4.2.2).
            part.throttles += 1
            self._back_off(part.throttles)
            return
        part.invokes += 1
        for entry in part.entries:
            entry.event.deliveries += 1
        self._say("deliver", f"delivers {', '.join(entry.event.label for entry in part.entries)}")
        payload = {"Records": [entry.record for entry in part.entries]}
        self._service.invoke(self.mapping.function, payload, lambda result: self._settle(part, result))

    def _settle(self, part: _Part, result: Result) -> None:
        self._busy = False
        if result.failed:
            self._failed(part, result, split=self.mapping.bisect)
            return
        known = [entry.sequence for entry in part.entries]
        failed = failed_identifiers(result.payload, known) if self.mapping.partial_responses else []
        if failed is WHOLE_BATCH:
            self._failed(part, result, split=self.mapping.bisect)
            return
        # The lowest number is the checkpoint; numbers are long decimals, so compare them as numbers (fact 4.2.4).
        first = min((known.index(identifier) for identifier in failed), default=len(known))
        for entry in part.entries[:first]:
            entry.event.complete()
        rest = part.entries[first:]
        if not rest:
            self._next()
        elif first:
            self._say("checkpoint", f"{first} record(s) done; goes on from {rest[0].event.label}")
            # Progress restarts the retry count: the rest gets all its attempts anew (fact 4.2.7).
            self._parts[0] = _Part(rest)
            self._back_off(1)
        else:
            self._failed(part, result, split=self.mapping.bisect and self._parameters.partial_report_splits)

    def _failed(self, part: _Part, result: Result, *, split: bool) -> None:
        if split and len(part.entries) > 1:
            # A split spends no attempt (fact 4.2.3).
            middle = len(part.entries) // 2
            halves = [_Part(part.entries[:middle]), _Part(part.entries[middle:])]
            self._say("split", f"halves the batch: {middle} and {len(part.entries) - middle} record(s)")
            for half in halves:
                half.splits = part.splits + 1
            self._parts[0:1] = halves
            self._back_off(part.splits + 1)
            return
        part.attempts += 1
        limit = self.mapping.retry_attempts
        if limit is not None and part.attempts > limit:
            self._give_up(part.entries, part.invokes, "RetryAttemptsExhausted", result)
            self._next()
            return
        self._back_off(part.attempts)

    def _back_off(self, failures: int) -> None:
        """Wait before the next try. Only the cap bounds it: AWS publishes no curve (fact 4.2.9)."""
        self._busy = True
        given = self._parameters
        wait = back_off(given.stream_backoff_base, given.stream_backoff_cap, failures, given.stream_backoff_factor)
        self._scheduler.after(wait, self._again)

    def _again(self) -> None:
        self._busy = False
        if self._parts:
            self._deliver()

    def _next(self) -> None:
        self._parts.pop(0)
        self._busy = False
        self._scheduler.after(0, self._poll)

    def _drop_aged(self, part: _Part) -> None:
        """Records over the age limit leave one by one, each with its own failure record (fact 4.2.8)."""
        if self.mapping.record_age is None:
            return
        clock = self._scheduler.clock
        for entry in list(part.entries):
            if clock.since(entry.arrived_ns) > self.mapping.record_age:
                part.entries.remove(entry)
                self._give_up([entry], part.invokes, "RecordAgeExceeded", None)

    def _give_up(self, entries: list[_Entry], invokes: int, condition: str, last: Result | None) -> None:
        """Move the checkpoint past the records and send the failure record (fact 4.2.10)."""
        labels = ", ".join(entry.event.label for entry in entries)
        destination = self.mapping.on_failure
        if destination is None:
            self._say("lost", f"{condition}: {labels} skipped; there is no on-failure destination")
            for entry in entries:
                entry.event.lose(f"{condition} and no on-failure destination ({self.mapping.path})")
            return
        to_bucket = destination in self._buckets
        record = stream_failure(
            timestamp=self._scheduler.clock.iso(),
            request_id=last.request_id if last is not None else str(uuid.uuid4()),
            function_arn=self.mapping.function_arn,
            condition=condition,
            attempts=invokes,
            shard=SHARD,
            stream_arn=self.mapping.stream_arn,
            records=[entry.record for entry in entries],
            arrivals=(_arrival(entries[0]), _arrival(entries[-1])),
            last=last,
            with_payload=to_bucket,
        )
        self._say("failure-record", f"{condition} after {invokes} attempts: {labels} to {destination}")
        body = json.dumps(record)
        if to_bucket:
            self._store.put_object(self._buckets[destination], self._object_key(), body)
        else:
            self._boxes[destination].add(body, labels, None)
        for entry in entries:
            entry.event.fail_to(destination, condition)

    def _object_key(self) -> str:
        wall = self._scheduler.clock.wall
        day, moment = wall.strftime("%Y/%m/%d"), wall.strftime("%Y-%m-%dT%H.%M.%S")
        return f"aws/lambda/{self.mapping.mapping_id}/{SHARD}/{day}/{moment}-{uuid.uuid4()}"

    def _expire(self, entry: _Entry) -> None:
        if entry.event.state == "waiting":
            self._ahead = [other for other in self._ahead if other is not entry]
            for part in self._parts:
                part.entries = [other for other in part.entries if other is not entry]
            entry.event.lose("the stream's retention of 24 h ran out (fact 4.2.14)")

    def _event_record(self, raw: dict[str, Any]) -> dict[str, Any]:
        body = dict(raw["dynamodb"])
        created = body["ApproximateCreationDateTime"]
        if isinstance(created, dt.datetime):
            body["ApproximateCreationDateTime"] = int(self._scheduler.clock.wall.timestamp())
        return {
            **raw,
            "eventVersion": "1.1",
            "awsRegion": self._region,
            "dynamodb": body,
            "eventSourceARN": self.mapping.stream_arn,
        }

    def _say(self, kind: str, text: str) -> None:
        self._trace.add(self._scheduler.clock.now, f"{self.table.path} stream", kind, text)


def _item_key(record: dict[str, Any]) -> str:
    return "/".join(str(next(iter(value.values()))) for value in record["dynamodb"]["Keys"].values())


def _arrival(entry: _Entry) -> str:
    return (EPOCH + dt.timedelta(seconds=entry.arrived_ns // NANOSECONDS)).strftime("%Y-%m-%dT%H:%M:%SZ")
