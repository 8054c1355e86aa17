"""Emptying the sandbox's bucket before it is destroyed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws

from stacks.emptying import STACK, bucket_of, empty


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield


def test_every_object_goes_over_more_than_one_page() -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="failed")
    for number in range(1001):
        s3.put_object(Bucket="failed", Key=str(number), Body=b"x")
    assert empty(s3, "failed") == 1001
    assert "Contents" not in s3.list_objects_v2(Bucket="failed")
    assert empty(s3, "failed") == 0


def test_an_object_that_stays_is_an_error() -> None:
    s3 = boto3.client("s3")
    with Stubber(s3) as stub:
        stub.add_response("list_objects_v2", {"Contents": [{"Key": "a"}]})
        stub.add_response("delete_objects", {"Errors": [{"Key": "a", "Code": "AccessDenied"}]})
        with pytest.raises(RuntimeError, match="failed/a could not be deleted: AccessDenied"):
            empty(s3, "failed")


def described(outputs: list[dict[str, str]]) -> Any:
    cloudformation = boto3.client("cloudformation")
    stub = Stubber(cloudformation)
    stack = {"StackName": STACK, "CreationTime": "2026-01-01", "StackStatus": "CREATE_COMPLETE", "Outputs": outputs}
    stub.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": "retry-safe-sandbox-stream"})
    stub.activate()
    return cloudformation


def test_the_bucket_is_the_one_of_the_sandbox_stack() -> None:
    outputs = [{"OutputKey": "Other", "OutputValue": "x"}, {"OutputKey": "FailedRecordsName", "OutputValue": "failed"}]
    assert bucket_of(described(outputs)) == "failed"


def test_a_stack_that_is_not_there_has_nothing_to_empty() -> None:
    cloudformation = boto3.client("cloudformation")
    with Stubber(cloudformation) as stub:
        stub.add_client_error("describe_stacks", "ValidationError", f"Stack with id {STACK} does not exist")
        assert bucket_of(cloudformation) is None


def test_another_error_is_not_taken_for_absence() -> None:
    cloudformation = boto3.client("cloudformation")
    with Stubber(cloudformation) as stub:
        stub.add_client_error("describe_stacks", "AccessDenied", "not allowed")
        with pytest.raises(ClientError, match="AccessDenied"):
            bucket_of(cloudformation)


def test_a_stack_without_the_output_is_refused() -> None:
    with pytest.raises(LookupError, match=r"has the outputs \['Other'\]; wanted FailedRecordsName"):
        bucket_of(described([{"OutputKey": "Other", "OutputValue": "x"}]))
