"""Grants on a customer KMS key, and the warning when the key's own policy is out of reach.

Without a customer key nothing here adds anything: the services' own keys need no grant and cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Annotations, Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

READ = ("kms:Decrypt",)
"""Receive from a queue, read a stream."""

WRITE = ("kms:Decrypt", "kms:GenerateDataKey")
"""Send to a queue, put an object. SQS checks both for a sender, S3 for an upload in parts."""

TABLE = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
"""Read and write a table: DynamoDB uses the key in the caller's name."""


def allow_key(role: iam.IRole, key: kms.IKey | None, actions: Sequence[str]) -> None:
    """Let a role use the key, by its own policy: a grant in the key's could close a cycle of stacks."""
    if key is not None:
        role.add_to_principal_policy(iam.PolicyStatement(actions=list(actions), resources=[key.key_arn]))


def allow_events(scope: Construct, key: kms.IKey | None) -> None:
    """Let EventBridge encrypt on a bus and send to a dead-letter queue; without it those events vanish
    silently.

    The condition names all rules and buses of the account, not ours: naming ours would make key and rule
    need each other.
    """
    _allow_service(
        scope,
        key,
        service="events.amazonaws.com",
        actions=[*WRITE, "kms:DescribeKey"],
        conditions={
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
            "ArnLike": {"aws:SourceArn": f"arn:{Aws.PARTITION}:events:{Aws.REGION}:{Aws.ACCOUNT_ID}:*"},
        },
    )


def allow_logs(scope: Construct, key: kms.IKey | None) -> None:
    """Let CloudWatch Logs encrypt the log groups of this account and region."""
    groups = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:*"
    _allow_service(
        scope,
        key,
        service=f"logs.{Aws.REGION}.amazonaws.com",
        actions=TABLE,
        conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
    )


def _allow_service(
    scope: Construct,
    key: kms.IKey | None,
    *,
    service: str,
    actions: Sequence[str],
    conditions: Mapping[str, Mapping[str, str]],
) -> None:
    if key is None:
        return
    added = key.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.ServicePrincipal(service)],
            actions=list(actions),
            resources=["*"],  # in a key's own policy this means that key
            conditions={name: dict(values) for name, values in conditions.items()},
        )
    )
    if not added.statement_added:
        Annotations.of(scope).add_warning_v2(
            f"retry-safe:key-policy:{service.partition('.')[0]}",
            f"The policy of the imported key cannot be changed from here. It must allow {service} "
            f"{', '.join(actions)}; without it events or logs are lost without an error.",
        )
