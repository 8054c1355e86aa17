"""The stand-in for payment and mail providers; only the sandbox stage deploys it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.constructs.handler_function import allow_table
from stacks.constructs.provider import ProviderBinding
from stacks.constructs.storage import KeyedTable


class SandboxProviderStack(Stack):
    """Tables that behave like a payment and a mail provider: one item is one effect.

    `key_lifetime` is how many seconds they remember an idempotency key.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key_lifetime: int,
        encryption_key: kms.IKey | None = None,
        **stack: Any,
    ) -> None:
        super().__init__(scope, construct_id, **stack)
        self._key_lifetime = key_lifetime
        self.payments = self._build_provider("Payments", encryption_key)
        self.mails = self._build_provider("Mails", encryption_key)

    def payments_binding(self) -> ProviderBinding:
        """Binds a function to the payment provider."""
        return self._binding(self.payments)

    def mails_binding(self) -> ProviderBinding:
        """Binds a function to the mail provider."""
        return self._binding(self.mails)

    def _build_provider(self, name: str, encryption_key: kms.IKey | None) -> dynamodb.Table:
        table = KeyedTable(self, name, keep_data=False, encryption_key=encryption_key, time_to_live="expiration")
        CfnOutput(self, f"{name}Name", value=table.table_name)
        return table

    def _binding(self, table: dynamodb.Table) -> ProviderBinding:
        return ProviderBinding(
            factory="sandbox_provider.client:connect",
            target=table.table_name,
            key_lifetime=self._key_lifetime,
            folders=("sandbox_provider",),
            allow=_requests_to(table),
        )


def _requests_to(table: dynamodb.Table) -> Callable[[iam.IRole], None]:
    # A keyed request is an UpdateItem; a keyless one, or one whose key was forgotten, is a PutItem.
    return lambda role: allow_table(role, table, "UpdateItem", "PutItem")
