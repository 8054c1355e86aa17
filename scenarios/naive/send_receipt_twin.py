"""The receipt without idempotency: every delivery sends a mail. Never deployed."""

import os
import uuid
from typing import Any

import boto3

mails = boto3.client("dynamodb")


def handler(event: Any, context: Any) -> None:
    mails.put_item(
        TableName=os.environ["PROVIDER_TARGET"],
        Item={
            "id": {"S": str(uuid.uuid4())},
            "reference": {"S": event["detail"]["orderId"]},
            "answer": {"S": "sent"},
            "calls": {"N": "1"},
        },
    )
