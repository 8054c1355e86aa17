"""The charge that most tutorials show: parse, call the provider, return. Never deployed."""

import json
import os
import uuid
from typing import Any

import boto3

payments = boto3.client("dynamodb")


def handler(event: Any, context: Any) -> None:
    for record in event["Records"]:
        order = json.loads(record["body"])
        payments.put_item(
            TableName=os.environ["PROVIDER_TARGET"],
            Item={
                "id": {"S": str(uuid.uuid4())},
                "reference": {"S": order["orderId"]},
                "answer": {"S": "charged"},
                "calls": {"N": "1"},
            },
        )
