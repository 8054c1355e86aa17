"""Tables and queues with the settings every one of them has here."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sqs as sqs
from constructs import Construct


class KeyedTable(dynamodb.Table):
    """On-demand table with the string partition key `id`, point-in-time recovery and encryption at rest.

    `time_to_live` names the attribute that holds the epoch second after which DynamoDB may delete an item.
    With `keep_data` the table survives its stack and refuses deletion; without, it goes with the stack.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        keep_data: bool,
        encryption_key: kms.IKey | None,
        time_to_live: str | None = None,
        stream: dynamodb.StreamViewType | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=time_to_live,
            stream=stream,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            # Without a customer key: the key DynamoDB owns, which costs nothing and needs no grant.
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if encryption_key else None,
            encryption_key=encryption_key,
            deletion_protection=keep_data,
            removal_policy=RemovalPolicy.RETAIN if keep_data else RemovalPolicy.DESTROY,
        )


class FailureQueue(sqs.Queue):
    """Standard queue where failed work waits for a person: encrypted, TLS only, kept `retention` seconds.

    Standard, because no failure path can write to a FIFO queue. `redrive_from` is the ARN of the one queue
    that may use this as its dead-letter queue; without it none may.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        retention: int,
        keep_data: bool,
        encryption_key: kms.IKey | None,
        redrive_from: str | None = None,
    ) -> None:
        if redrive_from is None:
            redrive = sqs.RedriveAllowPolicy(redrive_permission=sqs.RedrivePermission.DENY_ALL)
        else:
            source = sqs.Queue.from_queue_arn(scope, f"{construct_id}Source", redrive_from)
            redrive = sqs.RedriveAllowPolicy(redrive_permission=sqs.RedrivePermission.BY_QUEUE, source_queues=[source])
        super().__init__(
            scope,
            construct_id,
            retention_period=Duration.seconds(retention),
            redrive_allow_policy=redrive,
            removal_policy=RemovalPolicy.RETAIN if keep_data else RemovalPolicy.DESTROY,
            enforce_ssl=True,
            encryption=queue_encryption(encryption_key),
            encryption_master_key=encryption_key,
        )


def queue_encryption(key: kms.IKey | None) -> sqs.QueueEncryption:
    """The customer's key when there is one, else the key SQS owns."""
    return sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED
