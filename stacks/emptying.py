"""Empties the sandbox's bucket of failed records, so that `cdk destroy` can delete it: `python -m stacks.emptying`.

CloudFormation refuses to delete a bucket with objects. CDK's own answer is a second function with wildcard actions in
every account; a command before the destroy needs none. It knows the sandbox's stack only and touches no other stage.
"""

from __future__ import annotations

import sys
from typing import Any

import boto3
from botocore.exceptions import ClientError

STACK = "retry-safe-sandbox-stream"


def bucket_of(cloudformation: Any) -> str | None:
    """The name of the sandbox's bucket, or None where the stack is not deployed."""
    try:
        (stack,) = cloudformation.describe_stacks(StackName=STACK)["Stacks"]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
    if "FailedRecordsName" not in outputs:
        raise LookupError(f"stack {STACK} has the outputs {sorted(outputs)}; wanted FailedRecordsName among them")
    return str(outputs["FailedRecordsName"])


def empty(s3: Any, bucket: str) -> int:
    """Delete every object of a bucket. Returns how many there were; raises when one could not be deleted."""
    deleted = 0
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        keys = [{"Key": found["Key"]} for found in page.get("Contents", [])]
        if keys:
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
            if answer.get("Errors"):
                first = answer["Errors"][0]
                raise RuntimeError(f"{bucket}/{first['Key']} could not be deleted: {first['Code']}")
            deleted += len(keys)
    return deleted


def main() -> int:
    bucket = bucket_of(boto3.client("cloudformation"))
    if bucket is None:
        print(f"{STACK} is not deployed: nothing to empty")
        return 0
    print(f"{bucket}: {empty(boto3.client('s3'), bucket)} failed records deleted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
