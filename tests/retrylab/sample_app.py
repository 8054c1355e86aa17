"""A small app of its own for the lab's tests: plain boto3, raw template, nothing of this repository."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from retrylab import Assembly, Lab, Parameters

PRELUDE = """
import concurrent.futures, json, os, queue, random, secrets, socket, subprocess, threading, time, uuid
import boto3
from botocore.config import Config

RETRIES = {"mode": "standard", "total_max_attempts": 3}
dynamodb = boto3.client("dynamodb", config=Config(retries=RETRIES, read_timeout=2))
TABLE = os.environ["TABLE"]

def charge(order, key=None):
    key = key or str(uuid.uuid4())
    dynamodb.put_item(TableName=TABLE, Item={"id": {"S": key}, "reference": {"S": order}})

def seen(record):
    return json.loads(record["body"])["order"]
"""


def table(stream: bool = False) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    if stream:
        properties["StreamSpecification"] = {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    return {"Type": "AWS::DynamoDB::Table", "Properties": properties}


def function(timeout: int = 10) -> dict[str, Any]:
    return {
        "Type": "AWS::Lambda::Function",
        "Metadata": {"aws:asset:path": "asset.code"},
        "Properties": {
            "Handler": "app.handler",
            "Runtime": "python3.13",
            "Timeout": timeout,
            "Role": "arn:aws:iam::111122223333:role/r",
            "Code": {"S3Bucket": "assets", "S3Key": "code.zip"},
            "Environment": {"Variables": {"TABLE": {"Ref": "Charges"}}},
        },
    }


def queue_resources(
    queue: Mapping[str, Any] | None = None,
    mapping: Mapping[str, Any] | None = None,
    dead_letters: Mapping[str, Any] | None = None,
    timeout: int = 10,
) -> dict[str, Any]:
    """A queue with dead letters, a mapping and a function."""
    return {
        "Charges": table(),
        "Dead": {
            "Type": "AWS::SQS::Queue",
            "Properties": {"MessageRetentionPeriod": 1_209_600, **(dead_letters or {})},
        },
        "Orders": {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "VisibilityTimeout": 60,
                "RedrivePolicy": {
                    "deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]},
                    "maxReceiveCount": 3,
                },
                **(queue or {}),
            },
        },
        "Worker": function(timeout),
        "Mapping": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": {"Fn::GetAtt": ["Orders", "Arn"]},
                "FunctionName": {"Ref": "Worker"},
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
                **(mapping or {}),
            },
        },
    }


def event_resources(
    config: Mapping[str, Any] | None = None, target: Mapping[str, Any] | None = None, destination: bool = True
) -> dict[str, Any]:
    """A bus, a rule with a dead-letter queue, an asynchronous function with an on-failure destination."""
    on_failure = {"OnFailure": {"Destination": {"Fn::GetAtt": ["Failed", "Arn"]}}}
    return {
        "Charges": table(),
        "Bus": {"Type": "AWS::Events::EventBus", "Properties": {"Name": "shop"}},
        "Undelivered": {"Type": "AWS::SQS::Queue"},
        "Failed": {"Type": "AWS::SQS::Queue"},
        "Worker": function(),
        "Config": {
            "Type": "AWS::Lambda::EventInvokeConfig",
            "Properties": {
                "FunctionName": {"Ref": "Worker"},
                "Qualifier": "$LATEST",
                **({"DestinationConfig": on_failure} if destination else {}),
                **(config or {}),
            },
        },
        "Rule": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "EventBusName": {"Ref": "Bus"},
                "EventPattern": {"source": ["shop"]},
                "Targets": [
                    {
                        "Id": "T0",
                        "Arn": {"Fn::GetAtt": ["Worker", "Arn"]},
                        "DeadLetterConfig": {"Arn": {"Fn::GetAtt": ["Undelivered", "Arn"]}},
                        **(target or {}),
                    }
                ],
            },
        },
    }


def stream_resources(mapping: Mapping[str, Any] | None = None, destination: str | None = "Bucket") -> dict[str, Any]:
    """A table with a stream, its mapping with limits, and a bucket for failure records."""
    on_failure = {"OnFailure": {"Destination": {"Fn::GetAtt": [destination, "Arn"]}}}
    return {
        "Charges": table(),
        "Source": table(stream=True),
        "Bucket": {"Type": "AWS::S3::Bucket"},
        "Failed": {"Type": "AWS::SQS::Queue"},
        "Worker": function(),
        "Mapping": {
            "Type": "AWS::Lambda::EventSourceMapping",
            "Properties": {
                "EventSourceArn": {"Fn::GetAtt": ["Source", "StreamArn"]},
                "FunctionName": {"Ref": "Worker"},
                "StartingPosition": "TRIM_HORIZON",
                "BatchSize": 10,
                "MaximumRetryAttempts": 2,
                "BisectBatchOnFunctionError": True,
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
                **({"DestinationConfig": on_failure} if destination else {}),
                **(mapping or {}),
            },
        },
    }


class SampleApp:
    """Writes an assembly with one stack and one function to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def assembly(self, resources: Mapping[str, Any], code: str, **template: Any) -> Assembly:
        asset = self.folder / "asset.code"
        asset.mkdir(exist_ok=True)
        (asset / "app.py").write_text(PRELUDE + dedent(code))
        (self.folder / "App.template.json").write_text(json.dumps({"Resources": resources, **template}))
        manifest = {
            "artifacts": {
                "App": {
                    "type": "aws:cloudformation:stack",
                    "environment": "aws://unknown-account/unknown-region",
                    "properties": {"templateFile": "App.template.json", "stackName": "app"},
                }
            }
        }
        (self.folder / "manifest.json").write_text(json.dumps(manifest))
        return Assembly.load(self.folder)

    @contextmanager
    def lab(
        self, resources: Mapping[str, Any], code: str, parameters: Parameters | None = None, seed: int = 1
    ) -> Iterator[Lab]:
        with Lab(self.assembly(resources, code), seed=seed, parameters=parameters) as lab:
            yield lab


def orders(lab: Lab) -> list[str]:
    """The business keys of all effects so far, in order."""
    return [str(write.after["reference"]) for write in lab.writes if write.after]
