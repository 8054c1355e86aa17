"""The same charge on the stock library, as its documentation shows it: one layer, one batch processor, no changes."""

import json
import os
import time
import uuid
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
metrics = Metrics()
layer = DynamoDBPersistenceLayer(table_name=os.environ["IDEMPOTENCY_TABLE"])
config = IdempotencyConfig(event_key_jmespath="orderId", payload_validation_jmespath="amount", hash_function="sha256")
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
payments = boto3.client("dynamodb")


@idempotent_function(data_keyword_argument="order", persistence_store=layer, config=config)  # type: ignore[untyped-decorator]
def charge(order: dict[str, Any]) -> dict[str, Any]:
    """Charge at the sandbox provider, with the request that the other handler sends."""
    item = payments.update_item(
        TableName=os.environ["PROVIDER_TARGET"],
        Key={"id": {"S": order["orderId"]}},
        UpdateExpression=(
            "SET #answer = if_not_exists(#answer, :answer), #reference = if_not_exists(#reference, :reference),"
            " #expiration = if_not_exists(#expiration, :expiration) ADD #calls :one"
        ),
        ConditionExpression="attribute_not_exists(#failing) OR #failing = :false",
        ExpressionAttributeNames={
            f"#{name}": name for name in ("answer", "reference", "expiration", "calls", "failing")
        },
        ExpressionAttributeValues={
            ":answer": {"S": json.dumps({"id": f"sandbox-{uuid.uuid4().hex}"})},
            ":reference": {"S": order["orderId"]},
            ":expiration": {"N": str(int(time.time()) + 86_400)},
            ":one": {"N": "1"},
            ":false": {"BOOL": False},
        },
        ReturnValues="ALL_NEW",
    )["Attributes"]
    logger.info("charged")
    metrics.add_metric("Executed", MetricUnit.Count, 1)
    return {"chargeId": json.loads(item["answer"]["S"])["id"], "orderId": order["orderId"], "amount": order["amount"]}


def record_handler(record: SQSRecord) -> dict[str, Any]:
    """Handle one message."""
    result: dict[str, Any] = charge(order=json.loads(record.body))
    return result


@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Entry point of the function."""
    config.register_lambda_context(context)
    return process_partial_response(event=event, record_handler=record_handler, processor=processor, context=context)
