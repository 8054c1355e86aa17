"""One run: the sources of a template, a virtual clock, the real handlers, and whatever a scenario does to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boto3.dynamodb.types import TypeSerializer

from retrylab.assembly import Assembly
from retrylab.clock import Clock
from retrylab.containment import Containment
from retrylab.deliveries import Ledger
from retrylab.environment import Output, Stage, Twin
from retrylab.errors import LabError, Refused
from retrylab.faults import Call, Fault, FaultPlan
from retrylab.invocation import Attempt, LambdaService
from retrylab.model import Model, Table
from retrylab.parameters import Parameters
from retrylab.scheduler import Scheduler
from retrylab.sources.async_invoke import AsyncQueue, EventBus
from retrylab.sources.queue import Message, QueueBox, QueueSource
from retrylab.sources.stream import StreamSource
from retrylab.store import Store
from retrylab.trace import Trace
from retrylab.wire import Wire, Write


class Lab:
    """A context manager: entering takes over the process's clocks and wire, leaving gives them back.

    Names of resources are construct paths or their last parts (`Orders`, `Queue/Orders`). Times are virtual seconds.
    Not reentrant: one run at a time in a process.
    """

    def __init__(self, assembly: Assembly, *, seed: int = 1, parameters: Parameters | None = None) -> None:
        self.assembly = assembly
        self.model = Model(assembly)
        self.parameters = parameters or Parameters()
        self.seed = seed
        self.trace = Trace()
        self.ledger = Ledger()
        self.faults = FaultPlan()
        self.output = Output()
        regions = sorted({template.region for template in assembly.templates})
        if len(regions) > 1:
            raise Refused(f"the stacks of {assembly.source} are in {', '.join(regions)}; the lab plays one region")
        self._region = regions[0]
        self._account = assembly.templates[0].account

    def __enter__(self) -> Lab:
        Wire.warm_up()
        self.clock = Clock()
        self._scheduler = Scheduler(self.clock)
        self._stage = Stage(self.output)
        self.service = LambdaService(
            self._scheduler, self._stage, self.output, self.trace, self.parameters, self.model.functions
        )
        self._containment = Containment(
            self._scheduler,
            self.seed,
            self.service.spawn,
            self.service.leave_process,
            lambda: str(self.service.current_attempt()),
        )
        self._scheduler.start()
        self.clock.start(self._containment.sleep)
        self._containment.start()
        self._stage.start()
        self.store = Store(self.model, self._region, self.seed, lambda: self.clock.now_ns)
        self._wire = Wire(self._scheduler, self.store, self.faults, self.trace, self.parameters, self._look_at_streams)
        self._wire.start()
        try:
            self._build_sources()
        except BaseException:
            # `with` does not leave what it could not enter.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.stop()
        self._stage.leave()
        self._containment.stop()
        self.clock.stop()
        self._scheduler.stop()

    def _build_sources(self) -> None:
        scheduler, trace = self._scheduler, self.trace
        self._ids = 0
        self.boxes: dict[str, QueueBox] = {}
        for path, queue in self.model.queues.items():
            self.boxes[path] = QueueBox(queue, scheduler, trace, self._message_id, self.boxes)
        self._queue_sources: dict[str, QueueSource] = {}
        for mapping in self.model.queue_mappings:
            if mapping.queue in self._queue_sources:
                first = self._queue_sources[mapping.queue].mapping.path
                raise Refused(f"{mapping.queue} feeds {first} and {mapping.path}; the lab plays one mapping a queue")
            self._queue_sources[mapping.queue] = QueueSource(
                mapping, self.boxes[mapping.queue], self.service, scheduler, trace, self.ledger, self.parameters
            )
        self._async_queues: dict[tuple[str, str], AsyncQueue] = {}
        self._unreachable: dict[str, int] = {}
        self._stream_sources = [
            StreamSource(
                mapping, self.model.tables[mapping.table], self.store, self.boxes, self.model.buckets, self.service,
                scheduler, trace, self.ledger, self.parameters, self._region,
            )
            for mapping in self.model.stream_mappings
        ]  # fmt: skip

    # --- sources -----------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueSource:
        """The queue `name` with the mapping that consumes it."""
        path = self.assembly.find(name, "AWS::SQS::Queue").path
        if path not in self._queue_sources:
            consumed = ", ".join(self._queue_sources) or "none"
            raise LabError(f"queue {path} has no event source mapping; queues that have one: {consumed}")
        return self._queue_sources[path]

    def bus(self, name: str) -> EventBus:
        """The event bus `name` with the rules on it."""
        path = self.assembly.find(name, "AWS::Events::EventBus").path
        return EventBus(
            path,
            [target for target in self.model.rule_targets if target.bus == path],
            self._async_queue,
            self.boxes,
            self.service,
            self._scheduler,
            self.trace,
            self.ledger,
            self.parameters,
            self._region,
            self._account,
            self._unreachable,
        )

    def stream(self, name: str) -> StreamSource:
        """The stream mapping of the table `name`."""
        path = self.assembly.find(name, "AWS::DynamoDB::Table").path
        for source in self._stream_sources:
            if source.table.path == path:
                return source
        raise LabError(f"table {path} has no stream mapping")

    def put_item(self, table: str, item: Mapping[str, Any]) -> None:
        """Write an item as some other part of the system would; a stream of the table sees it."""
        serialize = TypeSerializer().serialize
        self.store.put(self.table(table), {name: serialize(value) for name, value in item.items()})
        self._look_at_streams()

    def delete_item(self, table: str, key: Mapping[str, Any]) -> None:
        """Remove an item as some other part of the system would; a stream of the table sees it."""
        serialize = TypeSerializer().serialize
        self.store.delete(self.table(table), {name: serialize(value) for name, value in key.items()})
        self._look_at_streams()

    # --- what goes wrong ---------------------------------------------------------------------------------------

    def crash(self, **where: Any) -> Fault:
        """The process dies at a call: `crash(side="after", operation="UpdateItem", on="Payments", attempt=1)`."""
        return self.faults.add(Fault("crash", **where))

    def hang(self, **where: Any) -> Fault:
        """The handler stops at a call and never goes on, until the function's timeout kills it."""
        return self.faults.add(Fault("hang", **where))

    def lose_response(self, **where: Any) -> Fault:
        """The request is applied, its response is lost; the SDK decides whether to send it again."""
        return self.faults.add(Fault("lose-response", side="after", **where))

    def slow(self, seconds: float, **where: Any) -> Fault:
        """A call takes `seconds`; a client with a shorter read timeout gives up while the service goes on."""
        _not_negative("slow", seconds)
        return self.faults.add(Fault("slow", side="before", seconds=seconds, **where))

    def fail(self, code: str, status: int, **where: Any) -> Fault:
        """The service refuses a call with this error code and HTTP status; nothing is applied."""
        return self.faults.add(Fault("fail", side="before", error=(code, status), **where))

    def throttle(self, function: str, seconds: float) -> None:
        """Every invoke of `function` is answered 429 for the next `seconds`."""
        _not_negative("throttle", seconds)
        self.service.throttle(self._function(function), self.clock.in_ns(seconds))

    def make_unreachable(self, bus: str, seconds: float) -> None:
        """EventBridge cannot deliver any event of this bus to Lambda for the next `seconds`."""
        self._unreachable[self.bus(bus).path] = self.clock.in_ns(seconds)

    def replace_code(self, function: str, folder: Path, handler: str) -> None:
        """Run `handler` from `folder` in place of the function's own code. The trace shows it."""
        path = self._function(function)
        self.service.twins[path] = Twin(folder, handler)
        self.trace.add(self.clock.now, path, "override", f"code replaced by {handler} ({folder.name})")

    def set_variable(self, function: str, name: str, value: str) -> None:
        """Change one environment variable of a function for this run. The trace shows it."""
        path = self._function(function)
        known = self.model.functions[path].environment
        if name not in known:
            raise LabError(f"{path} has no variable {name}; it has: {', '.join(sorted(known))}")
        self.service.variables.setdefault(path, {})[name] = value
        self.trace.add(
            self.clock.now, path, "override", f"variable {name} set to {value!r} (template: {known[name]!r})"
        )

    # --- running and looking -----------------------------------------------------------------------------------

    def run(self, until: float | None = None) -> None:
        """Let everything happen that will, or go on to `until` virtual seconds."""
        self._scheduler.run(until)

    def at(self, seconds: float, action: Any) -> None:
        """Do something `seconds` of virtual time from now."""
        _not_negative("at", seconds)
        self._scheduler.after(seconds, action)

    def table(self, name: str) -> Table:
        return self.model.tables[self.assembly.find(name, "AWS::DynamoDB::Table").path]

    def items(self, table: str) -> list[dict[str, Any]]:
        return self.store.items(self.table(table))

    def messages(self, queue: str) -> list[Message]:
        """What lies in a queue now."""
        return list(self.boxes[self.assembly.find(queue, "AWS::SQS::Queue").path].messages)

    def objects(self, bucket: str) -> dict[str, str]:
        """Keys and bodies of the objects in a bucket."""
        return self.store.objects(self.model.buckets[self.assembly.find(bucket, "AWS::S3::Bucket").path])

    @property
    def writes(self) -> list[Write]:
        """Every change that handlers made to an item, in order."""
        return self._wire.writes

    @property
    def calls(self) -> list[Call]:
        """Every request that handlers made, in order."""
        return self._wire.calls

    @property
    def attempts(self) -> list[Attempt]:
        return self.service.attempts

    @property
    def findings(self) -> list[str]:
        """Deliveries that a time relation of the template made overlap or go to waste, unless planned."""
        return [text for source in self._queue_sources.values() for text in source.findings]

    @property
    def last_change(self) -> float:
        """When the last thing happened that the trace tells of."""
        return max((step.at for step in self.trace.steps), default=0.0)

    def _look_at_streams(self) -> None:
        for source in self._stream_sources:
            source.look()

    def _async_queue(self, function: str, qualifier: str) -> AsyncQueue:
        place = (function, qualifier)
        if place not in self._async_queues:
            self._async_queues[place] = AsyncQueue(
                function,
                qualifier,
                self.model,
                self.boxes,
                self.service,
                self._scheduler,
                self.trace,
                self.parameters,
            )
        return self._async_queues[place]

    def _function(self, name: str) -> str:
        return self.assembly.find(name, "AWS::Lambda::Function").path

    def _message_id(self) -> str:
        self._ids += 1
        return f"{self._ids:08x}-0000-4000-8000-{self.seed:012x}"


def _not_negative(what: str, seconds: float) -> None:
    if seconds < 0:
        raise LabError(f"{what}: {seconds} s; wanted 0 s or more, the lab's time does not go back")
