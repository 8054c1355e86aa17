"""Orders table, stream mapping, search view, and the bucket of failed records."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.times import STREAM_RETENTION
from tests.stacks.synthesis import Stacks, Synthesized


@pytest.fixture
def stream(sandbox: Stacks) -> Synthesized:
    return sandbox["Stream"]


@pytest.fixture
def mapping(stream: Synthesized) -> dict[str, Any]:
    return stream.at("Stream/IndexOrder/Mapping")


def test_orders_stream_carries_both_images(stream: Synthesized) -> None:
    assert stream.at("Stream/Orders")["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}


def test_mapping_follows_the_stream_from_its_beginning(stream: Synthesized, mapping: dict[str, Any]) -> None:
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": [stream.id_at("Stream/Orders"), "StreamArn"]}
    assert mapping["StartingPosition"] == "TRIM_HORIZON"


def test_a_bad_record_is_isolated_and_given_up(mapping: dict[str, Any]) -> None:
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["MaximumRetryAttempts"] == 5
    assert mapping["MaximumRecordAgeInSeconds"] == 21_600 < STREAM_RETENTION
    assert mapping["BatchSize"] == 10


def test_what_is_given_up_keeps_its_payload_in_s3(stream: Synthesized, mapping: dict[str, Any]) -> None:
    bucket = stream.id_at("Stream/FailedRecords")
    assert mapping["DestinationConfig"] == {"OnFailure": {"Destination": {"Fn::GetAtt": [bucket, "Arn"]}}}


def test_bucket_is_private_encrypted_and_forgets(stream: Synthesized) -> None:
    bucket = stream.at("Stream/FailedRecords")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert bucket["BucketEncryption"] == {
        "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
    }
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    assert bucket["LifecycleConfiguration"]["Rules"] == [
        {
            "Id": "ForgetFailedRecords",
            "Status": "Enabled",
            "ExpirationInDays": 14,
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }
    ]


def test_bucket_refuses_plain_http_and_old_tls(stream: Synthesized) -> None:
    denied = stream.only("AWS::S3::BucketPolicy")["Properties"]["PolicyDocument"]["Statement"]
    conditions = [statement["Condition"] for statement in denied if statement["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in conditions
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in conditions


def test_search_view_forgets_tombstones(stream: Synthesized) -> None:
    view = stream.at("Stream/SearchView")
    assert view["TimeToLiveSpecification"] == {"AttributeName": "expiration", "Enabled": True}
    assert "StreamSpecification" not in view
    assert "TimeToLiveSpecification" not in stream.at("Stream/Orders")


@pytest.mark.parametrize("path", ["Stream/Orders", "Stream/SearchView"])
def test_tables_are_on_demand_and_recoverable(stream: Synthesized, path: str) -> None:
    table = stream.at(path)
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_sandbox_goes_with_the_stack_and_production_stays(sandbox: Stacks, production: Stacks) -> None:
    for stacks, policy, protected in ((sandbox, "Delete", False), (production, "Retain", True)):
        template = stacks["Stream"]
        assert template.resources[template.id_at("Stream/FailedRecords")]["DeletionPolicy"] == policy
        for table in template.of_type("AWS::DynamoDB::Table").values():
            assert table["DeletionPolicy"] == policy
            assert table["Properties"]["DeletionProtectionEnabled"] is protected


def test_no_helper_function_is_deployed_beside_the_handler(stream: Synthesized) -> None:
    assert len(stream.of_type("AWS::Lambda::Function")) == 1
    assert not [found for found in stream.resources.values() if found["Type"].startswith("Custom::")]


def test_outputs_name_tables_bucket_and_function(stream: Synthesized) -> None:
    assert set(stream.json["Outputs"]) == {
        "OrdersName",
        "SearchViewName",
        "FailedRecordsName",
        "IndexOrderName",
    }
