"""Lambda itself: execution environments, attempts with a deadline, and what each kind of end looks like."""

from __future__ import annotations

import json
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from retrylab.clock import NANOSECONDS
from retrylab.environment import ExecutionEnvironment, Output, Stage, Twin
from retrylab.errors import LabError, Refused
from retrylab.model import Function
from retrylab.parameters import Parameters
from retrylab.scheduler import Event, Scheduler, Strand
from retrylab.trace import Trace

End = Literal["returned", "raised", "timed-out", "crashed"]


@dataclass(frozen=True)
class Result:
    """How an attempt ended. `payload` is what the invoker gets: the response, or the error document (fact 5.3)."""

    end: End
    payload: Any
    request_id: str

    @property
    def failed(self) -> bool:
        """A function error: to every source the same, whatever the reason (fact 5.5)."""
        return self.end != "returned"


class LambdaContext:
    """The context object of one attempt, as the runtime passes it."""

    def __init__(self, attempt: Attempt, scheduler: Scheduler) -> None:
        function = attempt.function
        self.function_name = function.name
        self.function_version = "$LATEST"
        self.invoked_function_arn = function.arn
        self.memory_limit_in_mb = str(function.memory)
        self.aws_request_id = attempt.request_id
        self.log_group_name = f"/aws/lambda/{function.name}"
        self.log_stream_name = attempt.environment.variables["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.identity = None
        self.client_context = None
        self._attempt = attempt
        self._scheduler = scheduler

    def get_remaining_time_in_millis(self) -> int:
        return max(0, (self._attempt.deadline_ns - self._scheduler.clock.now_ns) // 1_000_000)


@dataclass(eq=False)
class Attempt:
    """One run of a handler for a delivery. `number` counts the attempts of its function, from 1."""

    id: int
    number: int
    function: Function
    environment: ExecutionEnvironment
    request_id: str
    payload: str
    started: float
    deadline_ns: int
    ended: Callable[[End, Any], None]
    scheduler: Scheduler
    strands: list[Strand] = field(default_factory=list)
    read_timeouts: dict[int, float] = field(default_factory=dict)
    calls_made: int = 0
    result: Result | None = None
    ended_at: float | None = None
    deadline: Event | None = None
    log: list[str] = field(default_factory=list)

    _by_strand: ClassVar[dict[int, Attempt]] = {}

    @classmethod
    def of_strand(cls, strand: Strand) -> Attempt | None:
        return cls._by_strand.get(id(strand))

    def own(self, strand: Strand) -> None:
        self.strands.append(strand)
        self._by_strand[id(strand)] = self

    def strand_number(self, strand: Strand | None) -> int:
        """0 for the handler's own strand, above 0 for those of its executors."""
        return self.strands.index(strand) if strand is not None else 0

    def crash(self) -> None:
        """Called inside a strand: the process dies here (`Runtime.ExitError`). Does not return."""
        self.ended("crashed", None)
        self.scheduler.hub.switch()

    def hang(self) -> None:
        """Called inside a strand: it never goes on; the deadline will end the attempt. Does not return."""
        current = self.scheduler.current
        assert current is not None
        current.abandon()
        self.scheduler.hub.switch()

    def __str__(self) -> str:
        return f"{self.function.path} attempt {self.number}"


class LambdaService:
    """Runs functions: picks or starts an environment, enforces the deadline, reports the result."""

    def __init__(
        self,
        scheduler: Scheduler,
        stage: Stage,
        output: Output,
        trace: Trace,
        parameters: Parameters,
        functions: dict[str, Function],
    ) -> None:
        self._scheduler = scheduler
        self._stage = stage
        self._output = output
        self._trace = trace
        self._parameters = parameters
        self._functions = functions
        self._idle: dict[str, list[ExecutionEnvironment]] = {}
        self._serial = 0
        self._throttled_until: dict[str, int] = {}
        self._throttles_unmet: set[str] = set()
        self._made: dict[str, int] = {}
        self.attempts: list[Attempt] = []
        self.twins: dict[str, Twin] = {}
        self.variables: dict[str, dict[str, str]] = {}
        Attempt._by_strand.clear()

    def throttle(self, function: str, until_ns: int) -> None:
        """Reject invokes of `function` with 429 until this virtual moment (fact 1.3)."""
        self._throttled_until[function] = until_ns
        self._throttles_unmet.add(function)

    @property
    def throttles_unmet(self) -> list[str]:
        """Functions whose throttling no invoke ever met."""
        return sorted(self._throttles_unmet)

    def timeout_of(self, function: str) -> float:
        """The function's timeout in seconds."""
        return self._functions[function].timeout

    def throttled(self, function: str) -> bool:
        throttled = self._scheduler.clock.now_ns < self._throttled_until.get(function, 0)
        if throttled:
            self._throttles_unmet.discard(function)
        return throttled

    def make_cold(self, function: str) -> None:
        """Forget the idle environments of a function: its next attempt starts cold."""
        self._idle.pop(function, None)

    def current_attempt(self) -> Attempt | None:
        """The attempt whose code runs right now."""
        strand = self._scheduler.current
        return Attempt.of_strand(strand) if strand is not None else None

    def leave_process(self) -> None:
        """Called inside a strand: the handler ended its process (`os._exit`)."""
        attempt = self.current_attempt()
        assert attempt is not None
        attempt.crash()

    def spawn(self, work: Callable[[], None]) -> Strand:
        """Called inside a strand: run `work` as another strand of the same attempt (an executor's worker)."""
        attempt = self.current_attempt()
        if attempt is None:
            raise LabError("an executor was used outside of an attempt")
        strand = self._strand(attempt, work, done=lambda _: None)
        self._scheduler.after(0, strand.resume)
        return strand

    def invoke(self, path: str, payload: Any, done: Callable[[Result], None], *, request_id: str = "") -> Attempt:
        """Start one attempt. `done` hears its result. The caller has checked `throttled` before."""
        function = self._functions[path]
        environment, cold = self._environment(function)
        now_ns = self._scheduler.clock.now_ns
        init_ns = round(self._parameters.init_time * NANOSECONDS) if cold else 0
        self._made[path] = number = self._made.get(path, 0) + 1
        attempt = Attempt(
            id=len(self.attempts) + 1,
            number=number,
            function=function,
            environment=environment,
            request_id=request_id or str(uuid.uuid4()),
            payload=json.dumps(payload),
            started=self._scheduler.clock.now,
            deadline_ns=now_ns + init_ns + round(function.timeout * NANOSECONDS),
            ended=lambda end, value: self._end(attempt, end, value, done),
            scheduler=self._scheduler,
        )
        self.attempts.append(attempt)
        attempt.deadline = self._scheduler.at(attempt.deadline_ns, lambda: attempt.ended("timed-out", None))
        start = "cold start" if cold else "warm start"
        twin = self.twins.get(path)
        self._say(attempt, "start", f"starts ({start}{', naive twin: ' + twin.handler if twin else ''})")

        def body() -> Any:
            if cold:
                self._scheduler.pause(self._parameters.init_time)
                environment.load()
            assert environment.handler is not None
            return environment.handler(json.loads(attempt.payload), LambdaContext(attempt, self._scheduler))

        strand = self._strand(attempt, body, done=lambda s: self._finished(attempt, s))
        self._scheduler.after(0, strand.resume)
        return attempt

    def _strand(self, attempt: Attempt, body: Callable[[], Any], done: Callable[[Strand], None]) -> Strand:
        strand = Strand(
            self._scheduler,
            body,
            enter=lambda: self._stage.enter(attempt.environment),
            leave=lambda: self._paused(attempt),
            done=done,
        )
        attempt.own(strand)
        return strand

    def _paused(self, attempt: Attempt) -> None:
        self._stage.pause()
        for line in self._output.fresh_lines():
            self._say(attempt, "log", f"prints {line}")

    def _environment(self, function: Function) -> tuple[ExecutionEnvironment, bool]:
        idle = self._idle.setdefault(function.path, [])
        if idle:
            return idle.pop(), False
        self._serial += 1
        overrides = self.variables.get(function.path, {})
        return ExecutionEnvironment(function, self._serial, overrides, self.twins.get(function.path)), True

    def _finished(self, attempt: Attempt, strand: Strand) -> None:
        """The handler came to its own end: by a return, an exception, or leaving the process."""
        if isinstance(strand.error, LabError):
            self._scheduler.failure = strand.error
            return
        if any(not other.finished for other in attempt.strands):
            self._scheduler.failure = Refused(
                f"{attempt}: the handler returned while work it gave to an executor was still running; "
                "Lambda would freeze that work, which the lab does not model"
            )
            return
        if strand.error is None:
            attempt.ended("returned", strand.result)
        elif isinstance(strand.error, Exception):
            attempt.ended("raised", strand.error)
        else:
            attempt.ended("crashed", strand.error)

    def _end(self, attempt: Attempt, end: End, value: Any, done: Callable[[Result], None]) -> None:
        if attempt.result is not None:
            return
        if attempt.deadline is not None:
            attempt.deadline.cancel()
        end, payload = _document(attempt, end, value)
        attempt.result = Result(end, payload, attempt.request_id)
        attempt.ended_at = self._scheduler.clock.now
        for strand in attempt.strands:
            strand.abandon()
        if end in ("returned", "raised") and attempt.environment.handler is not None:
            self._idle[attempt.function.path].append(attempt.environment)
        self._say(attempt, "end", _ending(attempt.result), end=end)
        # The invoker learns of it as an event of its own, never on the stack of the handler's strand.
        result = attempt.result
        self._scheduler.after(0, lambda: done(result))

    def _say(self, attempt: Attempt, kind: str, text: str, **data: Any) -> None:
        self._trace.add(self._scheduler.clock.now, str(attempt), kind, text, **data)


def _document(attempt: Attempt, end: End, value: Any) -> tuple[End, Any]:
    """The response, or the error document that Lambda makes of each kind of failure (fact 5.3)."""
    if end == "returned":
        try:
            return end, json.loads(json.dumps(value))
        except (TypeError, ValueError, RecursionError) as error:
            message = f"Unable to marshal response: {error}"
            return "raised", {"errorMessage": message, "errorType": "Runtime.MarshalError", "stackTrace": []}
    request_id = attempt.request_id
    if end == "timed-out":
        seconds = f"{attempt.function.timeout:.2f}"
        message = f"RequestId: {request_id} Error: Task timed out after {seconds} seconds"
        return end, {"errorType": "Sandbox.Timedout", "errorMessage": message}
    if end == "crashed":
        message = f"RequestId: {request_id} Error: Runtime exited with error: exit status 1"
        return end, {"errorType": "Runtime.ExitError", "errorMessage": message}
    frames = traceback.extract_tb(value.__traceback__)
    shown = [f"{_task_path(frame.filename, attempt.function)}:{frame.lineno} in {frame.name}" for frame in frames]
    return end, {
        "errorMessage": _text_of(value),
        "errorType": type(value).__name__,
        "requestId": request_id,
        "stackTrace": shown[-8:],
    }


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"({type(error).__name__} raised {type(broken).__name__} when asked for its message)"


def _task_path(filename: str, function: Function) -> str:
    root = str(function.code)
    return filename.replace(root, "/var/task") if filename.startswith(root) else filename.rsplit("/", 1)[-1]


def _ending(result: Result) -> str:
    if result.end == "returned":
        return f"returns {json.dumps(result.payload)}"
    return f"{result.end}: {result.payload['errorType']}: {result.payload['errorMessage']}"
