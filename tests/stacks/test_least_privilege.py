"""Each role holds exactly the actions its function's code and its source need, on exactly their resources."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stacks.synthesis import Stacks, Synthesized, as_list, statements

LOGS = {"logs:CreateLogStream", "logs:PutLogEvents"}
RECORDS = {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"}
PROVIDER = {"dynamodb:PutItem", "dynamodb:UpdateItem"}

Grants = dict[str, set[str]]

SANDBOX: dict[str, Grants] = {
    "Queue": {
        "Logs": LOGS,
        "Records": RECORDS,
        "Payments": PROVIDER,
        "Orders": {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"},
    },
    "Events": {"Logs": LOGS, "Records": RECORDS, "Mails": PROVIDER, "FailedReceipts": {"sqs:SendMessage"}},
    "Stream": {
        "Logs": LOGS,
        "SearchView": {"dynamodb:PutItem"},
        "Orders.StreamArn": {"dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"},
        "Orders/stream/*": {"dynamodb:ListStreams"},
        "FailedRecords": {"s3:ListBucket"},
        "FailedRecords/aws/lambda/*": {"s3:PutObject"},
    },
    "Idempotency": {},
    "SandboxProvider": {},
}

SUFFIXES = {
    "Orders/stream/*": "listing streams has no finer resource than the streams of one table",
    "FailedRecords/aws/lambda/*": "Lambda chooses the object's name below this prefix",
}
"""Every resource of a role that ends in a wildcard, and why it must."""

NAMES = ["Logs", "FailedRecords", "Records", "Payments", "Mails", "FailedReceipts", "SearchView", "Orders"]


def readable(template: Synthesized, resource: Any) -> str:
    """A policy's resource in words: what it names, then its attribute or suffix where that matters."""
    text = json.dumps(resource)
    name = next(name for name in NAMES if name in text)
    if "StreamArn" in text:
        return f"{name}.StreamArn"
    suffix = resource.get("Fn::Join", ["", [""]])[1][-1]
    return f"{name}{suffix}" if isinstance(suffix, str) else name


def grants(template: Synthesized) -> Grants:
    """What the roles of one template may do, by resource."""
    found: Grants = {}
    for statement in statements(template):
        assert statement["Effect"] == "Allow"
        for resource in as_list(statement["Resource"]):
            found.setdefault(readable(template, resource), set()).update(as_list(statement["Action"]))
    return found


@pytest.mark.parametrize("stack", SANDBOX)
def test_exactly_these_actions(sandbox: Stacks, stack: str) -> None:
    assert grants(sandbox[stack]) == SANDBOX[stack]


def test_production_drops_the_stand_ins_grants(production: Stacks) -> None:
    assert grants(production["Queue"]) == {key: SANDBOX["Queue"][key] for key in ("Logs", "Records", "Orders")}
    assert grants(production["Events"]) == {
        key: SANDBOX["Events"][key] for key in ("Logs", "Records", "FailedReceipts")
    }


@pytest.mark.parametrize("variant", ["sandbox", "production", "keyed", "aliased"])
class TestEveryVariant:
    @pytest.fixture
    def stacks(self, variant: str, request: pytest.FixtureRequest) -> Stacks:
        return dict(request.getfixturevalue(variant))

    def test_own_role_without_managed_policies(self, stacks: Stacks) -> None:
        for template in stacks.values():
            roles = template.of_type("AWS::IAM::Role")
            functions = template.of_type("AWS::Lambda::Function")
            used = [function["Properties"]["Role"]["Fn::GetAtt"][0] for function in functions.values()]
            assert sorted(used) == sorted(roles)
            for role in roles.values():
                assert set(role["Properties"]) == {"AssumeRolePolicyDocument"}

    def test_no_wildcard_action_and_no_bare_resource(self, stacks: Stacks) -> None:
        for template in stacks.values():
            for statement in statements(template):
                for action in as_list(statement["Action"]):
                    assert "*" not in action and action != "logs:CreateLogGroup"
                assert "*" not in as_list(statement["Resource"])

    def test_wildcard_suffixes_are_the_listed_ones(self, stacks: Stacks) -> None:
        suffixes = {
            readable(template, resource)
            for template in stacks.values()
            for statement in statements(template)
            for resource in as_list(statement["Resource"])
            if "*" in json.dumps(resource)
        }
        assert suffixes == set(SUFFIXES)

    def test_a_service_may_act_only_for_a_named_source(self, stacks: Stacks) -> None:
        for template in stacks.values():
            for kind in ("AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy"):
                for statement in statements(template, kind):
                    if statement["Effect"] == "Allow":
                        assert "aws:SourceArn" in statement["Condition"]["ArnEquals"]
            for permission in template.of_type("AWS::Lambda::Permission").values():
                assert "SourceArn" in permission["Properties"]


def test_failed_records_go_to_this_accounts_bucket_only(sandbox: Stacks) -> None:
    for statement in statements(sandbox["Stream"]):
        if as_list(statement["Action"])[0].startswith("s3:"):
            assert statement["Condition"] == {"StringEquals": {"s3:ResourceAccount": {"Ref": "AWS::AccountId"}}}
