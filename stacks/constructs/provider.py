"""What binds a function to the provider it calls, so that no stack knows which provider that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aws_cdk import aws_iam as iam


def _nothing(role: iam.IRole) -> None:
    """A provider reached over HTTP needs no grant."""


@dataclass(frozen=True, kw_only=True)
class ProviderBinding:
    """Environment, code and grants that a function needs to call one provider.

    `factory` is the "module:factory" path the function loads, `target` what the factory connects to (a
    table name or an https address), `key_lifetime` how many seconds the provider remembers an idempotency
    key (0: it takes none), `folders` what the function's asset holds beside its own code, `allow` adds the
    grants to the function's role.
    """

    factory: str
    target: str
    key_lifetime: int
    folders: tuple[str, ...] = ()
    allow: Callable[[iam.IRole], None] = _nothing

    @property
    def environment(self) -> dict[str, str]:
        """The variables through which the function finds the provider."""
        return {
            "PROVIDER": self.factory,
            "PROVIDER_TARGET": self.target,
            "PROVIDER_KEY_LIFETIME_SECONDS": str(self.key_lifetime),
        }


def http_binding(url: str, *, key_lifetime: int) -> ProviderBinding:
    """A provider behind an https address that takes the `Idempotency-Key` header.

    Raises `ValueError` for any other scheme: keys and amounts would travel in the clear.
    """
    if not url.startswith("https://"):
        raise ValueError(f"The provider's address is {url!r} and must start with https://")
    return ProviderBinding(factory="shared.http_provider:connect", target=url, key_lifetime=key_lifetime)
