"""Charge an order: SQS queue, dead-letter queue, mapping, and the function that claims before it charges.

The retry owner is the queue: a message that fails comes back after the visibility timeout, at most
`maxReceiveCount` times, and then waits in the dead-letter queue for a person.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import Annotations, Aws, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.constructs.encryption import READ
from stacks.constructs.handler_function import HandlerFunction
from stacks.constructs.provider import ProviderBinding
from stacks.constructs.storage import FailureQueue, queue_encryption
from stacks.times import QueueTimes


class QueueStack(Stack):
    """`orders` is the queue to send to, `dead_letters` where a message ends that failed every time.

    `records` is the idempotency table, `provider` the payment provider. `max_concurrency` (2 to 1000) is
    how many batches run at once; it stops the mapping from reading, where reserved concurrency would burn
    receives (fact 3.2.5). `keep_data` keeps queues, messages and logs when the stack goes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        records: dynamodb.ITable,
        provider: ProviderBinding,
        times: QueueTimes | None = None,
        batch_size: int = 10,
        max_concurrency: int = 5,
        memory_size: int = 256,
        keep_data: bool = False,
        encryption_key: kms.IKey | None = None,
        alias_name: str | None = None,
        **stack: Any,
    ) -> None:
        super().__init__(scope, construct_id, **stack)
        self.times = times or QueueTimes()
        self._keep_data = keep_data
        self._encryption_key = encryption_key
        self.dead_letters, self.orders = self._build_queues()
        self.charge_order = self._build_function(records, provider, memory_size, alias_name)
        self._build_mapping(batch_size, max_concurrency)
        CfnOutput(self, "OrdersUrl", value=self.orders.queue_url)
        CfnOutput(self, "OrdersDeadLettersUrl", value=self.dead_letters.queue_url)
        CfnOutput(self, "ChargeOrderName", value=self.charge_order.function.function_name)

    def _build_queues(self) -> tuple[sqs.Queue, sqs.Queue]:
        # The dead-letter queue names the only queue it takes from, and that queue names it. CloudFormation
        # cannot resolve such a pair of references, so the queue's name is made from the stack's name, which
        # is unique.
        name = f"{Aws.STACK_NAME}-orders"
        dead_letters = FailureQueue(
            self,
            "OrdersDeadLetters",
            retention=self.times.dead_letter_retention,
            keep_data=self._keep_data,
            encryption_key=self._encryption_key,
            redrive_from=self.format_arn(service="sqs", resource=name),
        )
        orders = sqs.Queue(
            self,
            "Orders",
            queue_name=name,
            visibility_timeout=Duration.seconds(self.times.visibility_timeout),
            retention_period=Duration.seconds(self.times.retention),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=self.times.max_receive_count),
            enforce_ssl=True,
            encryption=queue_encryption(self._encryption_key),
            encryption_master_key=self._encryption_key,
            removal_policy=RemovalPolicy.RETAIN if self._keep_data else RemovalPolicy.DESTROY,
        )
        return dead_letters, orders

    def _build_function(
        self, records: dynamodb.ITable, provider: ProviderBinding, memory_size: int, alias_name: str | None
    ) -> HandlerFunction:
        function = HandlerFunction(
            self,
            "ChargeOrder",
            folder="charge_order",
            more_folders=provider.folders,
            times=self.times,
            memory_size=memory_size,
            keep_data=self._keep_data,
            encryption_key=self._encryption_key,
            alias_name=alias_name,
            environment={
                "IDEMPOTENCY_TABLE": records.table_name,
                "LEASE_MARGIN_SECONDS": str(self.times.lease_margin),
                "RECORD_LIFETIME_SECONDS": str(self.times.record_lifetime),
                **provider.environment,
            },
        )
        function.allow_table(records, "GetItem", "PutItem", "UpdateItem", "DeleteItem")
        provider.allow(function.role)
        warning = self.times.short_key_lifetime(provider.key_lifetime)
        if warning:
            Annotations.of(self).add_warning_v2("retry-safe:key-lifetime", warning)
        return function

    def _build_mapping(self, batch_size: int, max_concurrency: int) -> None:
        function = self.charge_order
        function.allow(["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"], self.orders.queue_arn)
        function.allow_key(self._encryption_key, READ)
        lambda_.CfnEventSourceMapping(
            function,
            "Mapping",
            event_source_arn=self.orders.queue_arn,
            function_name=function.target_arn,
            batch_size=batch_size,
            maximum_batching_window_in_seconds=self.times.window,
            function_response_types=["ReportBatchItemFailures"],
            scaling_config=lambda_.CfnEventSourceMapping.ScalingConfigProperty(maximum_concurrency=max_concurrency),
        )
