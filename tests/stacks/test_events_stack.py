"""Bus, rule, asynchronous function, and the two failure paths that are different things."""

from __future__ import annotations

import pytest
from aws_cdk.assertions import Match

from stacks.times import DAY
from tests.stacks.synthesis import Stacks, Synthesized


@pytest.fixture
def events(sandbox: Stacks) -> Synthesized:
    return sandbox["Events"]


def test_the_rule_listens_on_its_own_bus(events: Synthesized) -> None:
    rule = events.at("Events/OrderCharged")
    assert rule["EventBusName"] == {"Ref": events.id_at("Events/OrderEvents")}
    assert rule["EventPattern"] == {"source": ["shop.orders"], "detail-type": ["OrderCharged"]}


def test_delivery_failures_are_retried_and_kept_by_the_rule(events: Synthesized) -> None:
    (target,) = events.at("Events/OrderCharged")["Targets"]
    assert target == {
        "Id": "SendReceipt",
        "Arn": {"Fn::GetAtt": [events.id_at("Events/SendReceipt/Function"), "Arn"]},
        "RetryPolicy": {"MaximumRetryAttempts": 185, "MaximumEventAgeInSeconds": 3600},
        "DeadLetterConfig": {"Arn": {"Fn::GetAtt": [events.id_at("Events/UndeliveredEvents"), "Arn"]}},
    }


def test_function_failures_are_retried_and_kept_by_lambda(events: Synthesized) -> None:
    assert events.at("Events/SendReceipt/AsyncConfig") == {
        "FunctionName": {"Ref": events.id_at("Events/SendReceipt/Function")},
        "Qualifier": "$LATEST",
        "MaximumRetryAttempts": 2,
        "MaximumEventAgeInSeconds": 3600,
        "DestinationConfig": {
            "OnFailure": {"Destination": {"Fn::GetAtt": [events.id_at("Events/FailedReceipts"), "Arn"]}}
        },
    }


def test_only_this_rule_may_invoke_the_function(events: Synthesized) -> None:
    assert events.only("AWS::Lambda::Permission")["Properties"] == {
        "Action": "lambda:InvokeFunction",
        "FunctionName": {"Fn::GetAtt": [events.id_at("Events/SendReceipt/Function"), "Arn"]},
        "Principal": "events.amazonaws.com",
        "SourceArn": {"Fn::GetAtt": [events.id_at("Events/OrderCharged"), "Arn"]},
    }


def test_only_this_rule_may_send_to_its_dead_letter_queue(events: Synthesized) -> None:
    events.template.has_resource_properties(
        "AWS::SQS::QueuePolicy",
        {
            "Queues": [{"Ref": events.id_at("Events/UndeliveredEvents")}],
            "PolicyDocument": {
                "Statement": Match.array_with(
                    [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": "events.amazonaws.com"},
                            "Action": "sqs:SendMessage",
                            "Resource": {"Fn::GetAtt": [events.id_at("Events/UndeliveredEvents"), "Arn"]},
                            "Condition": {
                                "ArnEquals": {
                                    "aws:SourceArn": {"Fn::GetAtt": [events.id_at("Events/OrderCharged"), "Arn"]}
                                }
                            },
                        }
                    ]
                )
            },
        },
    )


@pytest.mark.parametrize("path", ["Events/UndeliveredEvents", "Events/FailedReceipts"])
def test_failures_wait_14_days_in_standard_queues_nobody_may_redrive_into(events: Synthesized, path: str) -> None:
    assert events.at(path) == {
        "MessageRetentionPeriod": 14 * DAY,
        "RedriveAllowPolicy": {"redrivePermission": "denyAll"},
        "SqsManagedSseEnabled": True,
    }
    events.template.has_resource_properties(
        "AWS::SQS::QueuePolicy",
        {
            "Queues": [{"Ref": events.id_at(path)}],
            "PolicyDocument": {
                "Statement": Match.array_with(
                    [Match.object_like({"Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}})]
                )
            },
        },
    )


def test_sandbox_queues_go_with_the_stack_and_production_ones_stay(sandbox: Stacks, production: Stacks) -> None:
    for stacks, policy in ((sandbox, "Delete"), (production, "Retain")):
        queues = stacks["Events"].of_type("AWS::SQS::Queue").values()
        assert [found["DeletionPolicy"] for found in queues] == [policy, policy]


def test_production_calls_the_real_mail_provider(production: Stacks) -> None:
    variables = production["Events"].at("Events/SendReceipt/Function")["Environment"]["Variables"]
    assert variables["PROVIDER_TARGET"] == "https://mails.example.com"


def test_outputs_name_bus_queues_and_function(events: Synthesized) -> None:
    wanted = {"OrderEventsName", "UndeliveredEventsUrl", "FailedReceiptsUrl", "SendReceiptName"}
    assert set(events.json["Outputs"]) == wanted
