"""The environment variables of the functions: read here, typed and validated, nowhere else.

Durations are written by the stack's time module, so that template and handler cannot drift.
"""

import os
from dataclasses import dataclass

from shared.errors import SettingError


@dataclass(frozen=True)
class ClaimSettings:
    """How claims are stored: table name, lease margin in seconds, record lifetime in seconds."""

    table: str
    lease_margin_seconds: int
    record_lifetime_seconds: int


@dataclass(frozen=True)
class ProviderSettings:
    """Which provider is called: `module:factory`, its target, and its times in seconds.

    `key_lifetime_seconds` is how long the provider remembers an idempotency key; 0 = it takes no key.
    """

    factory: str
    target: str
    key_lifetime_seconds: int
    call_timeout_seconds: float


@dataclass(frozen=True)
class IndexSettings:
    """Where the search view is, how long a tombstone stays (seconds), the orders' TTL attribute, if any."""

    table: str
    tombstone_lifetime_seconds: int
    orders_ttl_attribute: str | None


def claim_settings() -> ClaimSettings:
    """Read the settings of a claiming function. Raises SettingError."""
    margin = _whole_seconds("LEASE_MARGIN_SECONDS", at_least=0)
    return ClaimSettings(_text("IDEMPOTENCY_TABLE"), margin, _whole_seconds("RECORD_LIFETIME_SECONDS", at_least=1))


def provider_settings() -> ProviderSettings:
    """Read the settings of the provider. Raises SettingError."""
    lifetime = _whole_seconds("PROVIDER_KEY_LIFETIME_SECONDS", at_least=0)
    return ProviderSettings(_text("PROVIDER"), _text("PROVIDER_TARGET"), lifetime, call_timeout_seconds())


def key_lifetime_seconds() -> int:
    """How long the function's provider remembers an idempotency key; 0: it takes none, or there is no provider."""
    name = "PROVIDER_KEY_LIFETIME_SECONDS"
    return _whole_seconds(name, at_least=0) if name in os.environ else 0


def results_bucket() -> str:
    """Name of the bucket for large results. Raises SettingError."""
    return _text("RESULTS_BUCKET")


def index_settings() -> IndexSettings:
    """Read the settings of the search view's writer. Raises SettingError."""
    ttl_attribute = _text("ORDERS_TTL_ATTRIBUTE") if "ORDERS_TTL_ATTRIBUTE" in os.environ else None
    lifetime = _whole_seconds("TOMBSTONE_LIFETIME_SECONDS", at_least=1)
    return IndexSettings(_text("SEARCH_VIEW_TABLE"), lifetime, ttl_attribute)


def call_timeout_seconds() -> float:
    """Read timeout of one SDK or provider call, in seconds. Raises SettingError."""
    name = "CALL_TIMEOUT_SECONDS"
    found = _text(name)
    try:
        seconds = float(found)
    except ValueError:
        seconds = float("nan")
    if not 0 < seconds <= 900:
        raise SettingError(f"{name} is {found!r}; wanted seconds above 0 and at most 900: set it in the stack")
    return seconds


def _text(name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise SettingError(f"{name} is not set; wanted a value: set it in the function's environment")
    if not found.strip() or found != found.strip():
        raise SettingError(f"{name} is {found!r}; wanted text without blanks around it: correct it in the stack")
    return found


def _whole_seconds(name: str, *, at_least: int) -> int:
    found = _text(name)
    if not (found.isascii() and found.isdigit() and int(found) >= at_least):
        raise SettingError(f"{name} is {found!r}; wanted whole seconds of at least {at_least}: correct it in the stack")
    return int(found)
