"""Send a receipt: own event bus, rule, asynchronous function, and two failure paths that are different
things.

There are two retry owners, one behind the other. EventBridge retries the *delivery* to Lambda; what it
gives up ends in `undelivered_events`, whose messages are the events themselves. Lambda's async queue
retries the *function*; what it gives up ends in `failed_receipts`, whose messages are records that carry
the event as `requestPayload`.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import Annotations, Aws, CfnOutput, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from stacks.constructs.encryption import WRITE, allow_events
from stacks.constructs.handler_function import HandlerFunction
from stacks.constructs.provider import ProviderBinding
from stacks.constructs.storage import FailureQueue
from stacks.times import AsyncTimes


class EventsStack(Stack):
    """`order_events` is the bus to put events on.

    `undelivered_events` holds events that never reached the function, `failed_receipts` those it failed on
    every time. `records` is the idempotency table, `provider` the mail provider. `keep_data` keeps queues
    and logs when the stack goes.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        records: dynamodb.ITable,
        provider: ProviderBinding,
        times: AsyncTimes | None = None,
        memory_size: int = 256,
        keep_data: bool = False,
        encryption_key: kms.IKey | None = None,
        alias_name: str | None = None,
        **stack: Any,
    ) -> None:
        super().__init__(scope, construct_id, **stack)
        self.times = times or AsyncTimes()
        self._keep_data = keep_data
        self._encryption_key = encryption_key
        allow_events(self, encryption_key)
        self.order_events = self._build_bus()
        self.undelivered_events = self._build_failure_queue("UndeliveredEvents")
        self.failed_receipts = self._build_failure_queue("FailedReceipts")
        self.send_receipt = self._build_function(records, provider, memory_size, alias_name)
        self._build_async_config()
        self._build_rule()
        CfnOutput(self, "OrderEventsName", value=self.order_events.ref)
        CfnOutput(self, "UndeliveredEventsUrl", value=self.undelivered_events.queue_url)
        CfnOutput(self, "FailedReceiptsUrl", value=self.failed_receipts.queue_url)
        CfnOutput(self, "SendReceiptName", value=self.send_receipt.function.function_name)

    def _build_bus(self) -> events.CfnEventBus:
        return events.CfnEventBus(
            self,
            "OrderEvents",
            # A bus must have a name; made from the stack's, so that two stages in one account do not collide.
            name=f"{Aws.STACK_NAME}-order-events",
            kms_key_identifier=self._encryption_key.key_arn if self._encryption_key else None,
        )

    def _build_failure_queue(self, name: str) -> sqs.Queue:
        return FailureQueue(
            self,
            name,
            retention=self.times.failure_retention,
            keep_data=self._keep_data,
            encryption_key=self._encryption_key,
        )

    def _build_function(
        self, records: dynamodb.ITable, provider: ProviderBinding, memory_size: int, alias_name: str | None
    ) -> HandlerFunction:
        function = HandlerFunction(
            self,
            "SendReceipt",
            folder="send_receipt",
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
        warnings = {
            "key-lifetime": self.times.short_key_lifetime(provider.key_lifetime),
            "wasted-retry": self.times.wasted_retry,
        }
        for name, warning in warnings.items():
            if warning:
                Annotations.of(self).add_warning_v2(f"retry-safe:{name}", warning)
        return function

    def _build_async_config(self) -> None:
        """Lambda's own retries of the function, for exactly the qualifier the rule invokes."""
        function = self.send_receipt
        function.allow(["sqs:SendMessage"], self.failed_receipts.queue_arn)
        function.allow_key(self._encryption_key, WRITE)
        config = lambda_.CfnEventInvokeConfig(
            function,
            "AsyncConfig",
            function_name=function.function.function_name,
            qualifier=function.qualifier,
            maximum_retry_attempts=self.times.retries,
            maximum_event_age_in_seconds=self.times.event_age,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=self.failed_receipts.queue_arn)
            ),
        )
        if function.alias is not None:
            config.node.add_dependency(function.alias)  # the qualifier is a plain text, which orders nothing

    def _build_rule(self) -> None:
        """EventBridge's retries of the delivery. Rule, permission and queues share a stack: no cycle."""
        function = self.send_receipt
        rule = events.CfnRule(
            self,
            "OrderCharged",
            event_bus_name=self.order_events.ref,
            event_pattern={"source": ["shop.orders"], "detail-type": ["OrderCharged"]},
            targets=[
                events.CfnRule.TargetProperty(
                    id="SendReceipt",
                    arn=function.target_arn,
                    retry_policy=events.CfnRule.RetryPolicyProperty(
                        maximum_retry_attempts=self.times.rule_retries,
                        maximum_event_age_in_seconds=self.times.rule_retry_age,
                    ),
                    dead_letter_config=events.CfnRule.DeadLetterConfigProperty(arn=self.undelivered_events.queue_arn),
                )
            ],
        )
        lambda_.CfnPermission(
            function,
            "FromOrderCharged",
            action="lambda:InvokeFunction",
            function_name=function.target_arn,
            principal="events.amazonaws.com",
            source_arn=rule.attr_arn,
        )
        self.undelivered_events.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=[self.undelivered_events.queue_arn],
                conditions={"ArnEquals": {"aws:SourceArn": rule.attr_arn}},
            )
        )
