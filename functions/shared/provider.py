"""The provider protocol: what an effect calls, and how the function finds the one its stack binds."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from shared.codec import JsonObject, JsonValue
from shared.errors import LoggableError, SettingError
from shared.once import Once
from shared.settings import ProviderSettings, provider_settings


class ProviderUnavailableError(LoggableError):
    """No answer, or a temporary refusal: the effect may have happened. A later delivery asks again."""


class ProviderDeclinedError(LoggableError):
    """The provider's permanent answer is no (a declined card): asking again gives the same answer."""


class ProviderRefusedError(LoggableError):
    """The provider refuses the request itself (malformed, unauthorised): a person has to correct it."""


class Provider(Protocol):
    """A payment or mail API: one request, one answer."""

    def request(self, payload: Mapping[str, JsonValue], *, reference: str, idempotency_key: str | None) -> JsonObject:
        """Ask for the effect. The answer's `id` names the effect at the provider.

        `reference` is the business id a person would search for. With an `idempotency_key` a repeat gets the
        first answer and has no second effect; None means the provider takes no key, and then one call is one
        request, without retries. Raises ProviderUnavailableError, ProviderDeclinedError or
        ProviderRefusedError, within the call timeout of the settings.
        """
        ...


_Factory: TypeAlias = Callable[[ProviderSettings], Provider]


@dataclass(frozen=True)
class BoundProvider:
    """The provider of this function. A keyless one (key lifetime 0) never gets the key."""

    provider: Provider
    key_lifetime_seconds: int

    def request(self, payload: Mapping[str, JsonValue], *, reference: str, idempotency_key: str) -> str:
        """Ask for the effect and return its id at the provider. Raises what `Provider.request` raises."""
        key = idempotency_key if self.key_lifetime_seconds else None
        answer = self.provider.request(payload, reference=reference, idempotency_key=key)
        effect_id = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(effect_id, str) or not effect_id:
            raise ProviderUnavailableError(
                f"the provider's answer has an id of type {type(effect_id).__name__}; wanted text: ask again"
            )
        return effect_id


@Once
def bound_provider() -> BoundProvider:
    """Return the provider that PROVIDER names (`module:factory`), connected once. Raises SettingError.

    The factory is called with `ProviderSettings` and returns a `Provider`.
    """
    settings = provider_settings()
    module_name, separator, factory_name = settings.factory.partition(":")
    if not (separator and module_name and factory_name.isidentifier()):
        raise SettingError(f"PROVIDER is {settings.factory!r}; wanted 'module:factory'")
    try:
        connect: _Factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise SettingError(
            f"PROVIDER is {settings.factory!r}, and that cannot be imported; wanted a factory in the function's asset"
        ) from error
    return BoundProvider(connect(settings), settings.key_lifetime_seconds)
