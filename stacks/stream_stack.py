"""Index an order: table with a stream, mapping, function, search view, and a bucket for records it gave up
on.

The retry owner is the stream's mapping: it holds the shard until a batch succeeds, halves it on an error,
and gives a record up after the bounded attempts or the record age. SQS and SNS would only get a pointer
into the stream, which is worthless after 24 h; S3 keeps the payload (fact 4.3).
"""

from __future__ import annotations

from typing import Any

from aws_cdk import Aws, CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.constructs.encryption import READ, WRITE
from stacks.constructs.handler_function import HandlerFunction
from stacks.constructs.storage import KeyedTable
from stacks.times import StreamTimes


class StreamStack(Stack):
    """`orders` is the table whose changes are followed, `search_view` what they are written to.

    `failed_records` holds what was given up, payload included. `keep_data` protects tables and bucket from
    deletion and keeps them, and the logs, when the stack goes. Without it everything goes, the bucket only
    once it is empty: CloudFormation deletes no bucket that holds objects.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        times: StreamTimes | None = None,
        batch_size: int = 10,
        memory_size: int = 256,
        keep_data: bool = False,
        encryption_key: kms.IKey | None = None,
        alias_name: str | None = None,
        **stack: Any,
    ) -> None:
        super().__init__(scope, construct_id, **stack)
        self.times = times or StreamTimes()
        self._keep_data = keep_data
        self._encryption_key = encryption_key
        self.orders = KeyedTable(
            self,
            "Orders",
            keep_data=keep_data,
            encryption_key=encryption_key,
            stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,
        )
        self.search_view = KeyedTable(
            self, "SearchView", keep_data=keep_data, encryption_key=encryption_key, time_to_live="expiration"
        )
        self.failed_records = self._build_failed_records()
        self.index_order = self._build_function(memory_size, alias_name)
        self._build_mapping(batch_size)
        CfnOutput(self, "OrdersName", value=self.orders.table_name)
        CfnOutput(self, "SearchViewName", value=self.search_view.table_name)
        CfnOutput(self, "FailedRecordsName", value=self.failed_records.bucket_name)
        CfnOutput(self, "IndexOrderName", value=self.index_order.function.function_name)

    def _build_failed_records(self) -> s3.Bucket:
        return s3.Bucket(
            self,
            "FailedRecords",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            encryption=s3.BucketEncryption.KMS if self._encryption_key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=self._encryption_key,
            bucket_key_enabled=True if self._encryption_key else None,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="ForgetFailedRecords",
                    expiration=Duration.days(self.times.failure_retention_days),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
            removal_policy=RemovalPolicy.RETAIN if self._keep_data else RemovalPolicy.DESTROY,
        )

    def _build_function(self, memory_size: int, alias_name: str | None) -> HandlerFunction:
        function = HandlerFunction(
            self,
            "IndexOrder",
            folder="index_order",
            times=self.times,
            memory_size=memory_size,
            keep_data=self._keep_data,
            encryption_key=self._encryption_key,
            alias_name=alias_name,
            environment={
                "SEARCH_VIEW_TABLE": self.search_view.table_name,
                "TOMBSTONE_LIFETIME_SECONDS": str(self.times.tombstone_lifetime),
            },
        )
        function.allow_table(self.search_view, "PutItem")
        return function

    def _build_mapping(self, batch_size: int) -> None:
        function = self.index_order
        self._allow_stream(function)
        self._allow_failed_records(function)
        lambda_.CfnEventSourceMapping(
            function,
            "Mapping",
            event_source_arn=self.orders.table_stream_arn,
            function_name=function.target_arn,
            # LATEST can miss records while the mapping starts (fact 4.2.17).
            starting_position="TRIM_HORIZON",
            batch_size=batch_size,
            maximum_batching_window_in_seconds=self.times.window,
            maximum_retry_attempts=self.times.retries,
            maximum_record_age_in_seconds=self.times.record_age,
            bisect_batch_on_function_error=True,
            function_response_types=["ReportBatchItemFailures"],
            destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
                on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(destination=self.failed_records.bucket_arn)
            ),
        )

    def _allow_stream(self, function: HandlerFunction) -> None:
        stream = str(self.orders.table_stream_arn)
        function.allow(["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"], stream)
        function.allow(["dynamodb:ListStreams"], f"{self.orders.table_arn}/stream/*")
        function.allow_key(self._encryption_key, READ)

    def _allow_failed_records(self, function: HandlerFunction) -> None:
        # A bucket name freed by a deletion can be taken by anybody: failed records go to this account's
        # bucket only.
        own = {"StringEquals": {"s3:ResourceAccount": Aws.ACCOUNT_ID}}
        function.allow(["s3:PutObject"], self.failed_records.arn_for_objects("aws/lambda/*"), conditions=own)
        function.allow(["s3:ListBucket"], self.failed_records.bucket_arn, conditions=own)
        function.allow_key(self._encryption_key, WRITE)
