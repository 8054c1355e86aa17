"""Synthesized stacks to assert on; nothing is installed and nothing copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aws_cdk import App, Stack
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Template

from stacks.events_stack import EventsStack
from stacks.idempotency_stack import IdempotencyStack
from stacks.queue_stack import QueueStack
from stacks.sandbox_provider_stack import SandboxProviderStack
from stacks.settings import Settings
from stacks.stream_stack import StreamStack

Resource = dict[str, Any]


@dataclass(frozen=True)
class Synthesized:
    """One template, with resources found by type and by construct path."""

    template: Template

    @property
    def json(self) -> dict[str, Any]:
        """The whole template."""
        return dict(self.template.to_json())

    @property
    def resources(self) -> dict[str, Resource]:
        """All resources by logical id."""
        return dict(self.json.get("Resources", {}))

    def of_type(self, kind: str) -> dict[str, Resource]:
        """The resources of one CloudFormation type, by logical id."""
        return {name: found for name, found in self.resources.items() if found["Type"] == kind}

    def only(self, kind: str) -> Resource:
        """The one resource of a type."""
        (found,) = self.of_type(kind).values()
        return found

    def id_at(self, path: str) -> str:
        """The logical id of the resource at a construct path such as `Queue/Orders`."""
        (found,) = [
            name
            for name, resource in self.resources.items()
            if resource["Metadata"]["aws:cdk:path"] in (path, f"{path}/Resource")
        ]
        return found

    def at(self, path: str) -> dict[str, Any]:
        """The properties of the resource at a construct path such as `Queue/Orders`."""
        return dict(self.resources[self.id_at(path)]["Properties"])


Stacks = dict[str, Synthesized]


def new_app() -> App:
    """An app that neither bundles assets nor validates templates nor reports anything."""
    return App(
        context={
            "aws:cdk:bundling-stacks": [],
            "aws:cdk:enable-path-metadata": True,
            "@aws-cdk/core:defaultCrossStackReferences": "strong",
            "@aws-cdk/core:explicitStackTags": True,
        },
        analytics_reporting=False,
        builtin_cloud_formation_validation=False,
    )


def synthesized(stacks: list[Stack]) -> Stacks:
    """The templates of some stacks by construct id."""
    return {stack.node.id: Synthesized(Template.from_stack(stack)) for stack in stacks}


PRODUCTION = Settings(
    stage="production", payments_url="https://payments.example.com", mails_url="https://mails.example.com"
)


def build_with(key: Callable[[Stack], kms.IKey] | None = None, alias_name: str | None = None) -> list[Stack]:
    """All stacks with a customer key, an alias, or both; the key lives in a stack of its own, `Keys`."""
    app = new_app()
    keys = Stack(app, "Keys")
    encryption_key = key(keys) if key else None
    idempotency = IdempotencyStack(app, "Idempotency", encryption_key=encryption_key)
    provider = SandboxProviderStack(app, "SandboxProvider", key_lifetime=30 * 86_400, encryption_key=encryption_key)
    options: dict[str, Any] = {"encryption_key": encryption_key, "alias_name": alias_name}
    records = idempotency.records
    queue = QueueStack(app, "Queue", records=records, provider=provider.payments_binding(), **options)
    events = EventsStack(app, "Events", records=records, provider=provider.mails_binding(), **options)
    stream = StreamStack(app, "Stream", **options)
    return [keys, idempotency, provider, queue, events, stream]


def statements(template: Synthesized, kind: str = "AWS::IAM::Policy") -> Iterator[dict[str, Any]]:
    """Every policy statement of the resources of one type."""
    for resource in template.of_type(kind).values():
        properties = resource["Properties"]
        yield from properties.get("PolicyDocument", properties.get("KeyPolicy"))["Statement"]


def as_list(value: Any) -> list[Any]:
    """A policy's value as a list; policies write single values bare."""
    return value if isinstance(value, list) else [value]
