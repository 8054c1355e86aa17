"""What a deployment may choose, read from CDK context: `cdk deploy -c queue_batch_size=5`."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stacks.times import DAY

STAGES = ("sandbox", "production")


class SettingsError(ValueError):
    """A setting is unknown, has the wrong type or contradicts another; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Stage, target and sizes of one deployment.

    `account` and `region` may stay open: then the deployment's credentials decide. Timeouts, windows and
    lifetimes are whole seconds. `sandbox` deploys the stand-in provider and removes everything on destroy;
    `production` keeps data and calls the providers at `payments_url` and `mails_url`, which must be https.
    `provider_key_lifetime` is how long a provider remembers an idempotency key; ask yours.
    """

    stage: str = "sandbox"
    account: str | None = None
    region: str | None = None
    memory_size: int = 256
    queue_function_timeout: int = 10
    queue_batch_window: int = 1
    queue_batch_size: int = 10
    queue_max_concurrency: int = 5
    queue_max_receive_count: int = 5
    events_function_timeout: int = 10
    stream_function_timeout: int = 10
    stream_batch_size: int = 10
    provider_key_lifetime: int = 30 * DAY
    payments_url: str | None = None
    mails_url: str | None = None

    def __post_init__(self) -> None:
        if self.stage not in STAGES:
            raise SettingsError(f"stage is {self.stage!r} and must be one of {', '.join(STAGES)}: set -c stage=...")
        for name, low, high in (
            ("memory_size", 128, 10_240),
            ("queue_batch_size", 1, 10_000),
            ("queue_max_concurrency", 2, 1_000),
            ("stream_batch_size", 1, 10_000),
            ("provider_key_lifetime", 0, 3650 * DAY),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise SettingsError(f"{name} is {value} and must be from {low} to {high}: set -c {name}=...")
        if self.queue_batch_size > 10 and not self.queue_batch_window:
            raise SettingsError(
                f"queue_batch_size is {self.queue_batch_size} and queue_batch_window is 0: a batch above 10 "
                "needs a window of at least 1 s"
            )
        for name in ("payments_url", "mails_url"):
            self._check_url(name, getattr(self, name))

    def _check_url(self, name: str, value: str | None) -> None:
        if self.stage == "production" and not value:
            raise SettingsError(f"{name} is missing: stage production calls a real provider, set -c {name}=https://...")
        if self.stage != "production" and value:
            raise SettingsError(f"{name} is {value!r} but stage {self.stage} uses the stand-in provider: remove it")
        if value and not value.startswith("https://"):
            raise SettingsError(f"{name} is {value!r} and must start with https://")

    @property
    def keep_data(self) -> bool:
        """Whether tables, queues, bucket and logs survive their stack."""
        return self.stage == "production"


def from_context(context: Mapping[str, Any]) -> Settings:
    """Read the settings out of all of CDK's context. Raises `SettingsError`.

    Keys that hold `@`, `:` or `/` belong to CDK itself and are passed over; every other key must be a
    setting.
    """
    fields = {field.name: str(field.type) for field in dataclasses.fields(Settings)}
    chosen = {name: value for name, value in context.items() if not any(mark in name for mark in "@:/")}
    for name in chosen:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            raise SettingsError(
                f"{name!r} is no setting{f', did you mean {near[0]!r}?' if near else ''} "
                f"The settings are: {', '.join(fields)}"
            )
    return Settings(**{name: _typed(name, value, fields[name]) for name, value in chosen.items()})


def _typed(name: str, value: Any, kind: str) -> Any:
    if kind == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value)
        raise SettingsError(f"{name} is {value!r} and must be a whole number: set -c {name}=10")
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise SettingsError(f"{name} is {value!r} and must be a text that is not blank: set -c {name}=...")
