"""The app: reads the settings, makes the stacks, hands each what it needs."""

from __future__ import annotations

import sys
from typing import Any

from aws_cdk import App, Environment, Stack

from stacks.constructs.provider import ProviderBinding, http_binding
from stacks.events_stack import EventsStack
from stacks.idempotency_stack import IdempotencyStack
from stacks.queue_stack import QueueStack
from stacks.sandbox_provider_stack import SandboxProviderStack
from stacks.settings import Settings, SettingsError, from_context
from stacks.stream_stack import StreamStack
from stacks.times import AsyncTimes, QueueTimes, StreamTimes, TimeRelationError


def build(app: App, settings: Settings) -> list[Stack]:
    """Add the stacks of one deployment to the app and return them in deploy order."""

    def named(name: str) -> dict[str, Any]:
        return {
            "stack_name": f"retry-safe-{settings.stage}-{name}",
            "env": Environment(account=settings.account, region=settings.region),
            "tags": {"project": "retry-safe-lambda", "stage": settings.stage},
        }

    keep = settings.keep_data
    memory = settings.memory_size
    idempotency = IdempotencyStack(app, "Idempotency", keep_data=keep, **named("idempotency"))
    providers, payments, mails = _providers(app, settings, named("sandbox-provider"))
    queue = QueueStack(
        app,
        "Queue",
        records=idempotency.records,
        provider=payments,
        times=QueueTimes(
            timeout=settings.queue_function_timeout,
            window=settings.queue_batch_window,
            max_receive_count=settings.queue_max_receive_count,
        ),
        batch_size=settings.queue_batch_size,
        max_concurrency=settings.queue_max_concurrency,
        memory_size=memory,
        keep_data=keep,
        **named("queue"),
    )
    events = EventsStack(
        app,
        "Events",
        records=idempotency.records,
        provider=mails,
        times=AsyncTimes(timeout=settings.events_function_timeout),
        memory_size=memory,
        keep_data=keep,
        **named("events"),
    )
    stream = StreamStack(
        app,
        "Stream",
        times=StreamTimes(timeout=settings.stream_function_timeout),
        batch_size=settings.stream_batch_size,
        memory_size=memory,
        keep_data=keep,
        **named("stream"),
    )
    return [idempotency, *providers, queue, events, stream]


def _providers(
    app: App, settings: Settings, stack: dict[str, Any]
) -> tuple[list[Stack], ProviderBinding, ProviderBinding]:
    lifetime = settings.provider_key_lifetime
    if settings.stage == "sandbox":
        sandbox = SandboxProviderStack(app, "SandboxProvider", key_lifetime=lifetime, **stack)
        return [sandbox], sandbox.payments_binding(), sandbox.mails_binding()
    payments = http_binding(str(settings.payments_url), key_lifetime=lifetime)
    mails = http_binding(str(settings.mails_url), key_lifetime=lifetime)
    return [], payments, mails


if __name__ == "__main__":
    the_app = App(analytics_reporting=False)
    try:
        build(the_app, from_context(the_app.node.get_all_context()))
    except (SettingsError, TimeRelationError) as error:
        sys.exit(f"app.py: {error}")  # the message says it all; a stack trace would hide it
    the_app.synth()
