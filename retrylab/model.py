"""Typed views of the resources that decide how events are delivered."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from retrylab.assembly import Assembly, Resource
from retrylab.errors import LabError, Refused
from retrylab.scope import refuse_unmodelled

T = TypeVar("T")


@dataclass(frozen=True)
class Queue:
    """A standard SQS queue. Times in seconds, with the service's defaults (facts 3.1.4, 3.1.13)."""

    path: str
    arn: str
    name: str
    url: str
    visibility_timeout: float
    retention: float
    delay: float
    dead_letters: str | None
    max_receive_count: int | None


@dataclass(frozen=True)
class Function:
    """A function with what one execution environment needs. Timeout in seconds (fact 5.1)."""

    path: str
    arn: str
    name: str
    handler: str
    runtime: str
    timeout: float
    memory: int
    environment: Mapping[str, str]
    code: Path
    layers: tuple[Path, ...]
    region: str


@dataclass(frozen=True)
class QueueMapping:
    """An event source mapping of a queue (facts 3.1.1, 3.1.2, 3.1.9)."""

    path: str
    queue: str
    function: str
    batch_size: int
    window: float
    partial_responses: bool
    maximum_concurrency: int | None


@dataclass(frozen=True)
class StreamMapping:
    """An event source mapping of a DynamoDB stream (fact 4.1). `None` means no limit (-1)."""

    path: str
    table: str
    stream_arn: str
    function: str
    function_arn: str
    mapping_id: str
    batch_size: int
    window: float
    partial_responses: bool
    bisect: bool
    retry_attempts: int | None
    record_age: float | None
    on_failure: str | None


@dataclass(frozen=True)
class AsyncConfig:
    """How failures of asynchronous events are treated for one qualifier (facts 2.1.1, 2.1.2, 2.1.7)."""

    path: str
    qualifier: str
    retry_attempts: int
    event_age: float
    on_failure: str | None


@dataclass(frozen=True)
class RuleTarget:
    """A rule's target function with the delivery retry policy of EventBridge (facts 2.5.1, 2.5.2)."""

    rule: str
    rule_arn: str
    target_arn: str
    bus: str
    pattern: str
    function: str
    qualifier: str
    retry_attempts: int
    event_age: float
    dead_letters: str | None


@dataclass(frozen=True)
class Table:
    """A DynamoDB table."""

    path: str
    name: str
    hash_key: str
    range_key: str | None
    attributes: tuple[tuple[str, str], ...]
    stream_view: str | None
    stream_arn: str
    ttl_attribute: str | None


class Model:
    """Everything the lab models of one assembly. Paths are the keys."""

    def __init__(self, assembly: Assembly) -> None:
        refuse_unmodelled(assembly)
        self.assembly = assembly
        self.queues = {r.path: self._read(r, self._queue) for r in assembly.of_type("AWS::SQS::Queue")}
        self.tables = {r.path: self._read(r, self._table) for r in assembly.of_type("AWS::DynamoDB::Table")}
        self.buckets = {r.path: assembly.ref(r) for r in assembly.of_type("AWS::S3::Bucket")}
        self.functions = {r.path: self._read(r, self._function) for r in assembly.of_type("AWS::Lambda::Function")}
        self.queue_mappings: list[QueueMapping] = []
        self.stream_mappings: list[StreamMapping] = []
        for resource in assembly.of_type("AWS::Lambda::EventSourceMapping"):
            self._read(resource, self._mapping)
        self.async_configs: dict[tuple[str, str], AsyncConfig] = {}
        for resource in assembly.of_type("AWS::Lambda::EventInvokeConfig"):
            function, config = self._read(resource, self._async_config)
            self.async_configs[(function, config.qualifier)] = config
        rules = assembly.of_type("AWS::Events::Rule")
        self.rule_targets = [target for r in rules for target in self._read(r, self._rule_targets)]

    def _read(self, resource: Resource, read: Callable[[Resource], T]) -> T:
        """Read one resource, or say which one has a property missing or of a type that means nothing."""
        try:
            return read(resource)
        except KeyError as missing:
            raise LabError(f"{resource.path}: {resource.type} has no {missing}; wanted it") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise LabError(f"{resource.path}: {resource.type} has a property the lab cannot read: {error}") from error

    def function_at(self, path: str) -> Function:
        return self.functions[path]

    def _queue(self, resource: Resource) -> Queue:
        properties = self.assembly.properties(resource)
        redrive = properties.get("RedrivePolicy")
        if isinstance(redrive, str):
            redrive = json.loads(redrive)
        dead_letters = None
        if redrive:
            dead_letters = self._target(resource, redrive["deadLetterTargetArn"], "AWS::SQS::Queue")
        return Queue(
            path=resource.path,
            arn=self.assembly.arn(resource),
            name=self.assembly.arn(resource).rsplit(":", 1)[-1],
            url=self.assembly.ref(resource),
            visibility_timeout=float(properties.get("VisibilityTimeout", 30)),
            retention=float(properties.get("MessageRetentionPeriod", 345_600)),
            delay=float(properties.get("DelaySeconds", 0)),
            dead_letters=dead_letters,
            max_receive_count=int(redrive["maxReceiveCount"]) if redrive else None,
        )

    def _table(self, resource: Resource) -> Table:
        properties = self.assembly.properties(resource)
        keys = {entry["KeyType"]: entry["AttributeName"] for entry in properties["KeySchema"]}
        ttl = properties.get("TimeToLiveSpecification", {})
        stream = properties.get("StreamSpecification")
        return Table(
            path=resource.path,
            name=self.assembly.ref(resource),
            hash_key=keys["HASH"],
            range_key=keys.get("RANGE"),
            attributes=tuple((a["AttributeName"], a["AttributeType"]) for a in properties["AttributeDefinitions"]),
            stream_view=stream["StreamViewType"] if stream else None,
            stream_arn=f"{self.assembly.arn(resource)}/stream/2026-01-01T00:00:00.000",
            ttl_attribute=ttl.get("AttributeName") if ttl.get("Enabled") else None,
        )

    def _function(self, resource: Resource) -> Function:
        properties = self.assembly.properties(resource)
        runtime = str(properties.get("Runtime"))
        if not runtime.startswith("python"):
            raise Refused(f"{resource.path}: Runtime {runtime}; the lab runs python handlers only")
        layers = []
        for raw in resource.properties.get("Layers", []):
            if not (isinstance(raw, Mapping) and "Ref" in raw):
                raise Refused(f"{resource.path}: layer {raw!r}; the lab takes layers of the same template only")
            layers.append(self.assembly.find(raw["Ref"], "AWS::Lambda::LayerVersion"))
        return Function(
            path=resource.path,
            arn=self.assembly.arn(resource),
            name=self.assembly.ref(resource),
            handler=str(properties["Handler"]),
            runtime=runtime,
            timeout=float(properties.get("Timeout", 3)),
            memory=int(properties.get("MemorySize", 128)),
            environment={k: str(v) for k, v in properties.get("Environment", {}).get("Variables", {}).items()},
            code=self.assembly.asset_folder(resource),
            layers=tuple(self.assembly.asset_folder(layer) for layer in layers),
            region=self.assembly.region_of(resource),
        )

    def _mapping(self, resource: Resource) -> None:
        properties = self.assembly.properties(resource)
        if not _truth(resource, "Enabled", properties.get("Enabled", True)):
            return
        source = self.assembly.by_arn(properties["EventSourceArn"])
        function, _ = self._invoked(resource, properties["FunctionName"])
        partial = "ReportBatchItemFailures" in properties.get("FunctionResponseTypes", [])
        if source is not None and source.type == "AWS::SQS::Queue":
            self.queue_mappings.append(self._queue_mapping(resource, properties, source, function, partial))
        elif source is not None and source.type == "AWS::DynamoDB::Table":
            self.stream_mappings.append(self._stream_mapping(resource, properties, source, function, partial))
        else:
            found = properties["EventSourceArn"]
            raise Refused(f"{resource.path}: event source {found}; the lab models queues and DynamoDB streams")

    def _queue_mapping(
        self,
        resource: Resource,
        properties: Mapping[str, Any],
        source: Resource,
        function: str,
        partial: bool,
    ) -> QueueMapping:
        for name in ("BisectBatchOnFunctionError", "DestinationConfig", "MaximumRecordAgeInSeconds",
                     "MaximumRetryAttempts", "StartingPosition"):  # fmt: skip
            if name in properties:
                raise Refused(f"{resource.path}: {name} does not apply to a queue (fact 3.1.11)")
        queue = self.queues[source.path]
        timeout = self.functions[function].timeout
        if timeout > queue.visibility_timeout:
            raise LabError(
                f"{resource.path}: deployment would fail (fact 3.1.5): {queue.path} VisibilityTimeout "
                f"{queue.visibility_timeout:g} s is less than {function} Timeout {timeout:g} s"
            )
        batch_size, window = (
            int(properties.get("BatchSize", 10)),
            float(properties.get("MaximumBatchingWindowInSeconds", 0)),
        )
        if batch_size > 10 and not window:
            raise LabError(
                f"{resource.path}: deployment would fail (fact 3.1.2): BatchSize {batch_size} needs a "
                "MaximumBatchingWindowInSeconds of at least 1"
            )
        return QueueMapping(
            path=resource.path,
            queue=source.path,
            function=function,
            batch_size=batch_size,
            window=window,
            partial_responses=partial,
            maximum_concurrency=properties.get("ScalingConfig", {}).get("MaximumConcurrency"),
        )

    def _stream_mapping(
        self,
        resource: Resource,
        properties: Mapping[str, Any],
        source: Resource,
        function: str,
        partial: bool,
    ) -> StreamMapping:
        if properties.get("StartingPosition") != "TRIM_HORIZON":
            found = properties.get("StartingPosition")
            raise Refused(f"{resource.path}: StartingPosition {found}; the lab models TRIM_HORIZON")
        destination = properties.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
        on_failure = None
        if destination:
            on_failure = self._target(resource, destination, "AWS::SQS::Queue", "AWS::S3::Bucket")
        return StreamMapping(
            path=resource.path,
            table=source.path,
            stream_arn=self.tables[source.path].stream_arn,
            function=function,
            function_arn=self.functions[function].arn,
            mapping_id=f"mapping-{resource.logical_id}",
            batch_size=int(properties.get("BatchSize", 100)),
            window=float(properties.get("MaximumBatchingWindowInSeconds", 0)),
            partial_responses=partial,
            bisect=_truth(resource, "BisectBatchOnFunctionError", properties.get("BisectBatchOnFunctionError", False)),
            retry_attempts=_limit(properties.get("MaximumRetryAttempts", -1)),
            record_age=_limit(properties.get("MaximumRecordAgeInSeconds", -1)),
            on_failure=on_failure,
        )

    def _async_config(self, resource: Resource) -> tuple[str, AsyncConfig]:
        properties = self.assembly.properties(resource)
        function, _ = self._invoked(resource, properties["FunctionName"])
        destinations = properties.get("DestinationConfig", {})
        if "OnSuccess" in destinations:
            raise Refused(f"{resource.path}: DestinationConfig.OnSuccess is not modelled by the lab")
        target = destinations.get("OnFailure", {}).get("Destination")
        return function, AsyncConfig(
            path=resource.path,
            qualifier=str(properties["Qualifier"]),
            retry_attempts=int(properties.get("MaximumRetryAttempts", 2)),
            event_age=float(properties.get("MaximumEventAgeInSeconds", 21_600)),
            on_failure=self._target(resource, target, "AWS::SQS::Queue") if target else None,
        )

    def _rule_targets(self, resource: Resource) -> list[RuleTarget]:
        properties = self.assembly.properties(resource)
        if properties.get("State", "ENABLED") != "ENABLED":
            return []
        if "EventPattern" not in properties:
            raise Refused(f"{resource.path}: a rule without EventPattern (a schedule) is not modelled by the lab")
        bus = properties.get("EventBusName", "default")
        targets = []
        for target in properties.get("Targets", []):
            unknown = set(target) - {"Arn", "Id", "RetryPolicy", "DeadLetterConfig"}
            if unknown:
                raise Refused(f"{resource.path}: Targets.{sorted(unknown)[0]} is not modelled by the lab")
            function, qualifier = self._invoked(resource, target["Arn"])
            policy = target.get("RetryPolicy", {})
            dead_letters = target.get("DeadLetterConfig", {}).get("Arn")
            targets.append(
                RuleTarget(
                    rule=resource.path,
                    rule_arn=self.assembly.arn(resource),
                    target_arn=target["Arn"],
                    bus=self._target(resource, bus, "AWS::Events::EventBus") if bus != "default" else "default",
                    pattern=json.dumps(properties["EventPattern"]),
                    function=function,
                    qualifier=qualifier,
                    retry_attempts=int(policy.get("MaximumRetryAttempts", 185)),
                    event_age=float(policy.get("MaximumEventAgeInSeconds", 86_400)),
                    dead_letters=self._target(resource, dead_letters, "AWS::SQS::Queue") if dead_letters else None,
                )
            )
        return targets

    def _invoked(self, resource: Resource, name: str) -> tuple[str, str]:
        """The function's path and the qualifier that a function name, ARN, alias or version means."""
        for function in self.functions.values():
            for identity in (function.arn, function.name):
                if name == identity:
                    return function.path, "$LATEST"
                if name.startswith(f"{identity}:"):
                    return function.path, name.removeprefix(f"{identity}:")
        raise Refused(f"{resource.path}: {name} is no function of this assembly")

    def _target(self, resource: Resource, arn: str, *types: str) -> str:
        found = self.assembly.by_arn(arn)
        if found is None or found.type not in types:
            what = f"{found.path} ({found.type})" if found else arn
            raise Refused(f"{resource.path}: target {what}; the lab models {' and '.join(types)} here")
        return found.path


def _truth(resource: Resource, name: str, value: Any) -> bool:
    """A boolean, also as the text that CloudFormation accepts."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise LabError(f"{resource.path}: {name} is {value!r}; wanted true or false")
    return value


def _limit(value: Any) -> int | None:
    return None if int(value) == -1 else int(value)
