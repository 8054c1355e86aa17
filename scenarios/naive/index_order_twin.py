"""The index without a version guard: the last writer wins, however old its record is. Never deployed."""

import os
from typing import Any

import boto3

view = boto3.client("dynamodb")


def handler(event: Any, context: Any) -> None:
    for record in event["Records"]:
        view.put_item(TableName=os.environ["SEARCH_VIEW_TABLE"], Item=record["dynamodb"]["NewImage"])
