"""Every stateful resource keeps its identity: changing one of these replaces the resource or blinds it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stacks.synthesis import Stacks

Identity = dict[str, Any]

KEY = [{"AttributeName": "id", "KeyType": "HASH"}]

STATEFUL: list[tuple[str, str, Identity, str]] = [
    (
        "Idempotency/Records",
        "Records091F6ECA",
        {"KeySchema": KEY, "TimeToLive": "expiration"},
        "every operation done so far would be forgotten, and each duplicate would take effect again",
    ),
    (
        "Stream/Orders",
        "OrdersA9B65338",
        {"KeySchema": KEY, "TimeToLive": None},
        "all orders would be left behind, and changes still in the old stream would never be indexed",
    ),
    (
        "Stream/SearchView",
        "SearchView6035917A",
        {"KeySchema": KEY, "TimeToLive": "expiration"},
        "all indexed versions would be forgotten, and old records could overwrite newer ones",
    ),
    (
        "Stream/FailedRecords",
        "FailedRecordsDEC8AD7E",
        {},
        "records given up and not yet redriven would be left behind",
    ),
    (
        "Queue/Orders",
        "OrdersA9B65338",
        {"QueueName": {"Fn::Join": ["", [{"Ref": "AWS::StackName"}, "-orders"]]}},
        "messages not yet received would be lost, and senders would write to a queue that is gone",
    ),
    (
        "Queue/OrdersDeadLetters",
        "OrdersDeadLetters5F17D95A",
        {},
        "dead letters not yet redriven would be lost",
    ),
    ("Events/UndeliveredEvents", "UndeliveredEvents0A4241A7", {}, "undelivered events would be lost"),
    ("Events/FailedReceipts", "FailedReceiptsE22A4306", {}, "failed receipts not yet redriven would be lost"),
    (
        "Events/OrderEvents",
        "OrderEvents",
        {"Name": {"Fn::Join": ["", [{"Ref": "AWS::StackName"}, "-order-events"]]}},
        "publishers would put events on a bus that is gone",
    ),
    (
        "SandboxProvider/Payments",
        "Payments130453D3",
        {"KeySchema": KEY, "TimeToLive": "expiration"},
        "the stand-in would forget its keys, and takeovers would charge again",
    ),
    (
        "SandboxProvider/Mails",
        "Mails0DC70ADE",
        {"KeySchema": KEY, "TimeToLive": "expiration"},
        "the stand-in would forget its keys, and takeovers would mail again",
    ),
]

STATEFUL_TYPES = {"AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::Events::EventBus"}


@pytest.mark.parametrize(("path", "logical_id", "identity", "forgotten"), STATEFUL, ids=[row[0] for row in STATEFUL])
def test_identity_is_kept(sandbox: Stacks, path: str, logical_id: str, identity: Identity, forgotten: str) -> None:
    template = sandbox[path.partition("/")[0]]
    properties = template.at(path)
    found = {
        name: properties.get("TimeToLiveSpecification", {}).get("AttributeName")
        if name == "TimeToLive"
        else properties.get(name)
        for name in identity
    }
    assert (template.id_at(path), found) == (logical_id, identity), (
        f"{path} changed its identity: deployed as it is, {forgotten}. Migrate the data first, then change this row."
    )


def test_every_stateful_resource_is_listed(sandbox: Stacks) -> None:
    listed = {path for path, *_ in STATEFUL}
    found = {
        resource["Metadata"]["aws:cdk:path"].removesuffix("/Resource")
        for template in sandbox.values()
        for resource in template.resources.values()
        if resource["Type"] in STATEFUL_TYPES
    }
    assert found == listed, "A stateful resource without a pinned identity can be replaced unnoticed"


def test_no_fixed_physical_names(sandbox: Stacks) -> None:
    """The two names that must exist are made from the stack's name (a pair of queues, a bus)."""
    naming = {
        "TableName",
        "QueueName",
        "BucketName",
        "FunctionName",
        "RoleName",
        "PolicyName",
        "LogGroupName",
        "Name",
    }
    for template in sandbox.values():
        for resource in template.resources.values():
            if resource["Type"] in ("AWS::Lambda::EventSourceMapping", "AWS::IAM::Policy"):
                continue  # FunctionName is a reference; an inline policy's name lives inside its role
            for name in naming & resource.get("Properties", {}).keys():
                value = resource["Properties"][name]
                assert not isinstance(value, str), (resource["Type"], name, value)
                assert "Ref" in value or "Fn::GetAtt" in value or {"Ref": "AWS::StackName"} in value["Fn::Join"][1]
