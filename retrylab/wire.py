"""The wire between handler code and AWS: every request passes here, after real serialization and signing.

A request that handler code makes is a place where the attempt can be cut, on either side of it. The answer comes
from `moto`; botocore's own retries, timeouts and error handling stay in between.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
import botocore.handlers
import botocore.hooks
import botocore.loaders
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from retrylab.clock import replace_everywhere
from retrylab.errors import Refused
from retrylab.faults import Call, Fault, FaultPlan
from retrylab.invocation import Attempt
from retrylab.parameters import Parameters
from retrylab.scheduler import Scheduler
from retrylab.store import Item, Store, error_response, object_address, request_body, touched_items
from retrylab.trace import Trace

_WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}
_READS = {"GetItem", "Query", "Scan"}
_OBJECT_WRITES = {"PutObject", "DeleteObject"}
_OBJECT_READS = {"GetObject", "HeadObject"}
_DEFAULT_READ_TIMEOUT = 60.0


@dataclass(frozen=True)
class Write:
    """A change that a handler made to one item: what was there before, what is there now."""

    table: str
    before: Item | None
    after: Item | None
    attempt: Attempt
    call: Call
    at: float
    claimed: bool


class Wire:
    """Answers the requests of one run. `on_stream_write` is told the path of a table whose stream has grown."""

    def __init__(
        self,
        scheduler: Scheduler,
        store: Store,
        faults: FaultPlan,
        trace: Trace,
        parameters: Parameters,
        on_applied: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._store = store
        self._faults = faults
        self._trace = trace
        self._latency = parameters.call_latency
        self._on_applied = on_applied
        self.writes: list[Write] = []
        self.calls: list[Call] = []
        self._claims: set[int] = set()

    @staticmethod
    def warm_up() -> None:
        """Before the first run of a process: load what a first client loads, so that every run draws the same bytes."""
        if _Hook.install():
            keys = {"aws_access_key_id": "lab", "aws_secret_access_key": "lab"}
            boto3.client("dynamodb", region_name="us-east-1", **keys)

    def start(self) -> None:
        _Hook.wire = self

    def stop(self) -> None:
        _Hook.wire = None

    def before_call(self, context: dict[str, Any]) -> None:
        """Note the read timeout that the client making this call was configured with."""
        attempt = self._attempt()
        if attempt is not None:
            config = context.get("client_config")
            attempt.read_timeouts[id(self._scheduler.current)] = getattr(config, "read_timeout", _DEFAULT_READ_TIMEOUT)

    def send(self, event_name: str, request: AWSPreparedRequest) -> AWSResponse | None:
        attempt = self._attempt()
        if attempt is None:
            return None
        _, service, operation = event_name.split(".")
        call, items = self._describe(attempt, service, operation, request)
        self.calls.append(call)
        struck = self._faults.at(call, "before")
        if struck is not None:
            refusal = self._strike(struck, attempt, call, request, items)
            if refusal is not None:
                return refusal
        return self._exchange(attempt, call, request, items)

    def _exchange(
        self, attempt: Attempt, call: Call, request: AWSPreparedRequest, items: list[tuple[str, Item]]
    ) -> AWSResponse:
        self._scheduler.pause(self._latency / 2)
        response = self._apply(attempt, call, request, items)
        struck = self._faults.at(call, "after")
        if struck is not None:
            self._strike(struck, attempt, call, request, items)
        self._scheduler.pause(self._latency / 2)
        return response

    def _apply(
        self, attempt: Attempt, call: Call, request: AWSPreparedRequest, items: list[tuple[str, Item]]
    ) -> AWSResponse:
        before = [self._store.item(table, key) for table, key in items] if call.writes else []
        response = self._store.send(request, call.operation)
        self._say(attempt, call, f"{call} {_keys(call)} -> {_outcome(response)}")
        if call.writes and response.status_code == 200:
            for (table, key), old in zip(items, before, strict=True):
                new = self._store.item(table, key)
                if new != old:
                    path = self._store.tables[table].path
                    self.writes.append(
                        Write(
                            path,
                            old,
                            new,
                            attempt,
                            call,
                            self._scheduler.clock.now,
                            attempt.id in self._claims,
                        )
                    )
            if call.conditional:
                self._claims.add(attempt.id)
        self._on_applied()
        return response

    def _strike(
        self, fault: Fault, attempt: Attempt, call: Call, request: AWSPreparedRequest, items: list[tuple[str, Item]]
    ) -> AWSResponse | None:
        """Let the fault happen. Only `fail` gives an answer; the others end, delay or blind the attempt."""
        self._say(attempt, call, f"{call} {_keys(call)}: {fault.kind} {fault.side} it")
        if fault.kind == "crash":
            attempt.crash()
        if fault.kind == "hang":
            attempt.hang()
        if fault.kind == "fail":
            self._scheduler.pause(self._latency)
            return error_response(request, *fault.error)
        read_timeout = attempt.read_timeouts.get(id(self._scheduler.current), _DEFAULT_READ_TIMEOUT)
        if fault.kind == "lose-response":
            self._scheduler.pause(self._latency / 2)
            raise ConnectionClosedError(endpoint_url=request.url)
        if fault.seconds > read_timeout:
            # The service goes on with the request although its caller stops waiting.
            self._scheduler.after(fault.seconds / 2, lambda: self._late(attempt, call, request, items))
            self._scheduler.pause(read_timeout)
            raise ReadTimeoutError(endpoint_url=request.url)
        self._scheduler.pause(fault.seconds)
        return None

    def _late(self, attempt: Attempt, call: Call, request: AWSPreparedRequest, items: list[tuple[str, Item]]) -> None:
        self._apply(attempt, call, request, items)

    def _attempt(self) -> Attempt | None:
        strand = self._scheduler.current
        return Attempt.of_strand(strand) if strand is not None else None

    def _describe(
        self, attempt: Attempt, service: str, operation: str, request: AWSPreparedRequest
    ) -> tuple[Call, list[tuple[str, Item]]]:
        if service == "s3" and operation in _OBJECT_WRITES | _OBJECT_READS:
            return self._describe_object(attempt, operation, request), []
        if service != "dynamodb" or operation not in _WRITES | _READS:
            refusal = Refused(f"{attempt.function.path} called {service}:{operation}, which the lab does not model")
            self._scheduler.stop_for(refusal)
        body = request_body(request)
        items = touched_items(operation, body, self._store.tables)
        names = [name for name, _ in items] or [str(body.get("TableName", ""))]
        unknown = [name for name in names if name not in self._store.tables]
        if unknown:
            refusal = Refused(
                f"{attempt.function.path} called {operation} on table {unknown[0]!r}, "
                f"which no template of the assembly holds; there are: {', '.join(sorted(self._store.tables))}"
            )
            self._scheduler.stop_for(refusal)
        actions = [next(iter(a.values())) for a in body.get("TransactItems", [])] or [body]
        attempt.calls_made += 1
        call = Call(
            service=service,
            operation=operation,
            target=self._store.tables[names[0]].path,
            keys=tuple("/".join(str(v) for v in self._store.plain(key).values()) for _, key in items),
            conditional=any("ConditionExpression" in action for action in actions),
            writes=operation in _WRITES,
            attempt=attempt.number,
            function=attempt.function.path,
            number=attempt.calls_made,
            index=len(self.calls),
            strand=attempt.strand_number(self._scheduler.current),
        )
        return call, items

    def _describe_object(self, attempt: Attempt, operation: str, request: AWSPreparedRequest) -> Call:
        bucket, key = object_address(request)
        if bucket not in self._store.buckets:
            refusal = Refused(
                f"{attempt.function.path} called {operation} on bucket {bucket!r}, which no template of the assembly "
                f"holds; there are: {', '.join(sorted(self._store.buckets)) or 'none'}"
            )
            self._scheduler.stop_for(refusal)
        attempt.calls_made += 1
        return Call(
            service="s3",
            operation=operation,
            target=self._store.buckets[bucket],
            keys=(key,),
            conditional="if-none-match" in {name.lower() for name in request.headers},
            writes=operation in _OBJECT_WRITES,
            attempt=attempt.number,
            function=attempt.function.path,
            number=attempt.calls_made,
            index=len(self.calls),
            strand=attempt.strand_number(self._scheduler.current),
        )

    def _say(self, attempt: Attempt, call: Call, text: str) -> None:
        self._trace.add(self._scheduler.clock.now, str(attempt), "call", text, operation=call.operation)


class _Hook:
    """Botocore takes handlers for new sessions once a process; which wire answers changes from run to run."""

    wire: Wire | None = None
    _installed = False

    @classmethod
    def install(cls) -> bool:
        """Install once a process; says whether this call did."""
        if cls._installed:
            return False
        cls._installed = True
        # Each cold environment makes a session of its own, which would parse the same model files again.
        replace_everywhere(botocore.loaders, "create_loader", functools.cache(botocore.loaders.create_loader))
        _remember_event_names()
        botocore.handlers.BUILTIN_HANDLERS.append(("before-call", cls._before_call))
        botocore.handlers.BUILTIN_HANDLERS.append(("before-send", cls._before_send))
        return True

    @classmethod
    def _before_call(cls, context: dict[str, Any], **_: Any) -> None:
        if cls.wire is not None:
            cls.wire.before_call(context)

    @classmethod
    def _before_send(cls, event_name: str, request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        return cls.wire.send(event_name, request) if cls.wire is not None else None


def _remember_event_names() -> None:
    """Each session registers a hundred handlers under names that botocore translates anew, always with one result."""
    translate = botocore.hooks.EventAliaser._alias_event_name
    known: dict[str, str] = {}

    def remembered(aliaser: Any, event_name: str) -> str:
        if event_name not in known:
            known[event_name] = translate(aliaser, event_name)
        return known[event_name]

    botocore.hooks.EventAliaser._alias_event_name = remembered


def _keys(call: Call) -> str:
    return " ".join(_short(key) for key in call.keys)


def _short(key: str) -> str:
    """Record ids end in a long hash; a story needs only enough of it to tell two apart."""
    head, mark, tail = key.rpartition("#")
    return f"{head}{mark}{tail[:8]}…" if mark and len(tail) > 12 else key


def _outcome(response: AWSResponse) -> str:
    if response.status_code == 200:
        return "ok"
    kind = str(response.headers.get("x-amzn-errortype", ""))
    if not kind:
        text = response.content.decode()
        kind = text.split('"__type"')[-1].split('"')[1] if "__type" in text else str(response.status_code)
    return kind.split("#")[-1].split(":")[0]
