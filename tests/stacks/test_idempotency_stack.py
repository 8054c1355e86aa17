"""The table of idempotency records."""

from __future__ import annotations

from aws_cdk.assertions import Template

from tests.stacks.synthesis import Stacks

TABLE = "AWS::DynamoDB::Table"


def test_records_on_demand_keyed_by_id_and_forgotten_by_expiration(sandbox: Stacks) -> None:
    template: Template = sandbox["Idempotency"].template
    template.has_resource_properties(
        TABLE,
        {
            "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "TimeToLiveSpecification": {"AttributeName": "expiration", "Enabled": True},
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        },
    )


def test_sandbox_records_go_with_the_stack(sandbox: Stacks) -> None:
    sandbox["Idempotency"].template.has_resource(
        TABLE,
        {
            "DeletionPolicy": "Delete",
            "UpdateReplacePolicy": "Delete",
            "Properties": {"DeletionProtectionEnabled": False},
        },
    )


def test_production_records_stay_and_refuse_deletion(production: Stacks) -> None:
    production["Idempotency"].template.has_resource(
        TABLE,
        {
            "DeletionPolicy": "Retain",
            "UpdateReplacePolicy": "Retain",
            "Properties": {"DeletionProtectionEnabled": True},
        },
    )


def test_service_owned_key_by_default_and_the_customers_when_given(sandbox: Stacks, keyed: Stacks) -> None:
    assert "SSESpecification" not in sandbox["Idempotency"].at("Idempotency/Records")
    encryption = keyed["Idempotency"].at("Idempotency/Records")["SSESpecification"]
    assert encryption["SSEEnabled"] is True
    assert "Fn::ImportValue" in encryption["KMSMasterKeyId"]


def test_outputs_name_the_table(sandbox: Stacks) -> None:
    assert "RecordsName" in sandbox["Idempotency"].json["Outputs"]
