"""Queue, dead-letter queue, mapping and consumer."""

from __future__ import annotations

import pytest
from aws_cdk import Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk.assertions import Annotations, Match

import app
from stacks.constructs.provider import http_binding
from stacks.queue_stack import QueueStack
from stacks.settings import Settings
from stacks.times import DAY
from tests.stacks.synthesis import Stacks, Synthesized, new_app


@pytest.fixture
def queue(sandbox: Stacks) -> Synthesized:
    return sandbox["Queue"]


def test_visibility_is_six_timeouts_and_the_window(queue: Synthesized) -> None:
    assert queue.at("Queue/ChargeOrder/Function")["Timeout"] == 10
    assert queue.at("Queue/ChargeOrder/Mapping")["MaximumBatchingWindowInSeconds"] == 1
    assert queue.at("Queue/Orders")["VisibilityTimeout"] == 6 * 10 + 1


def test_five_receives_then_the_dead_letter_queue(queue: Synthesized) -> None:
    assert queue.at("Queue/Orders")["RedrivePolicy"] == {
        "deadLetterTargetArn": {"Fn::GetAtt": [queue.id_at("Queue/OrdersDeadLetters"), "Arn"]},
        "maxReceiveCount": 5,
    }


def test_dead_letters_outlive_the_queue(queue: Synthesized) -> None:
    assert queue.at("Queue/Orders")["MessageRetentionPeriod"] == 4 * DAY
    assert queue.at("Queue/OrdersDeadLetters")["MessageRetentionPeriod"] == 14 * DAY


def test_dead_letters_are_taken_from_this_queue_only(queue: Synthesized) -> None:
    policy = queue.at("Queue/OrdersDeadLetters")["RedriveAllowPolicy"]
    assert policy["redrivePermission"] == "byQueue"
    (source,) = policy["sourceQueueArns"]
    name = queue.at("Queue/Orders")["QueueName"]["Fn::Join"][1]
    assert source["Fn::Join"][1][-len(name) :] == name
    assert name[0] == {"Ref": "AWS::StackName"}


def test_both_queues_are_standard(queue: Synthesized) -> None:
    for found in queue.of_type("AWS::SQS::Queue").values():
        assert "FifoQueue" not in found["Properties"]


@pytest.mark.parametrize("path", ["Queue/Orders", "Queue/OrdersDeadLetters"])
def test_queues_are_encrypted_and_refuse_plain_http(queue: Synthesized, path: str) -> None:
    assert queue.at(path)["SqsManagedSseEnabled"] is True
    queue.template.has_resource_properties(
        "AWS::SQS::QueuePolicy",
        {
            "Queues": [{"Ref": queue.id_at(path)}],
            "PolicyDocument": {
                "Statement": Match.array_with(
                    [
                        Match.object_like(
                            {
                                "Effect": "Deny",
                                "Action": "sqs:*",
                                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
                                "Resource": {"Fn::GetAtt": [queue.id_at(path), "Arn"]},
                            }
                        )
                    ]
                )
            },
        },
    )


def test_mapping_reports_single_failures_and_caps_concurrency(queue: Synthesized) -> None:
    assert queue.at("Queue/ChargeOrder/Mapping") == {
        "EventSourceArn": {"Fn::GetAtt": [queue.id_at("Queue/Orders"), "Arn"]},
        "FunctionName": {"Fn::GetAtt": [queue.id_at("Queue/ChargeOrder/Function"), "Arn"]},
        "BatchSize": 10,
        "MaximumBatchingWindowInSeconds": 1,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": 5},
    }


def test_sandbox_queues_go_with_the_stack_and_production_ones_stay(sandbox: Stacks, production: Stacks) -> None:
    for stacks, policy in ((sandbox, "Delete"), (production, "Retain")):
        for kind in ("AWS::SQS::Queue", "AWS::Logs::LogGroup"):
            assert {found["DeletionPolicy"] for found in stacks["Queue"].of_type(kind).values()} == {policy}


def test_production_calls_the_real_provider_without_the_stand_in(production: Stacks) -> None:
    variables = production["Queue"].at("Queue/ChargeOrder/Function")["Environment"]["Variables"]
    assert variables["PROVIDER"] == "shared.http_provider:connect"
    assert variables["PROVIDER_TARGET"] == "https://payments.example.com"
    assert "SandboxProvider" not in production


def test_sandbox_calls_the_stand_in(sandbox: Stacks) -> None:
    variables = sandbox["Queue"].at("Queue/ChargeOrder/Function")["Environment"]["Variables"]
    assert variables["PROVIDER"] == "sandbox_provider.client:connect"
    assert "retry-safe-sandbox-sandbox-provider:" in variables["PROVIDER_TARGET"]["Fn::ImportValue"]


def test_outputs_name_queues_and_function(queue: Synthesized) -> None:
    assert set(queue.json["Outputs"]) == {"OrdersUrl", "OrdersDeadLettersUrl", "ChargeOrderName"}


def test_a_short_key_lifetime_warns_at_synth() -> None:
    other = new_app()
    records = dynamodb.Table.from_table_name(Stack(other, "Other"), "Records", "records")
    provider = http_binding("https://pay.example.com", key_lifetime=DAY)
    stack = QueueStack(other, "Queue", records=records, provider=provider)
    Annotations.from_stack(stack).has_warning(
        "/Queue", Match.string_like_regexp("forgets keys after 86400 s, the retry horizon is 1555261 s")
    )


def test_a_provider_in_plain_http_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'http://pay.example.com' and must start with https://"):
        http_binding("http://pay.example.com", key_lifetime=DAY)


def test_the_sandbox_has_no_warning() -> None:
    for stack in app.build(new_app(), Settings()):
        assert Annotations.from_stack(stack).find_warning("*", Match.any_value()) == []
