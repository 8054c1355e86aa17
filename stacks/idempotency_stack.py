"""The table that remembers which operations have taken effect."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.constructs.storage import KeyedTable


class IdempotencyStack(Stack):
    """One table of idempotency records, shared by every function that claims.

    `records` is the table; pass it to the stacks that need it. `keep_data` protects it from deletion and
    keeps it when the stack goes: losing it forgets every duplicate.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        keep_data: bool = False,
        encryption_key: kms.IKey | None = None,
        **stack: Any,
    ) -> None:
        super().__init__(scope, construct_id, **stack)
        self.records = KeyedTable(
            self,
            "Records",
            keep_data=keep_data,
            encryption_key=encryption_key,
            # Epoch seconds. Never rename: DynamoDB takes one change an hour, and records of the old name
            # never expire.
            time_to_live="expiration",
        )
        CfnOutput(self, "RecordsName", value=self.records.table_name)
