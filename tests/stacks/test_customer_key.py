"""With a customer key, everyone on every path may use it: a missing grant loses events without an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match

from stacks.constructs.provider import http_binding
from stacks.events_stack import EventsStack
from stacks.idempotency_stack import IdempotencyStack
from stacks.queue_stack import QueueStack
from tests.stacks.synthesis import Stacks, as_list, build_with, new_app, statements, synthesized

SEND = {"kms:Decrypt", "kms:GenerateDataKey"}
TABLE = {
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
}

ENCRYPTED = {
    "AWS::SQS::Queue": "KmsMasterKeyId",
    "AWS::DynamoDB::Table": "SSESpecification",
    "AWS::Logs::LogGroup": "KmsKeyId",
    "AWS::Events::EventBus": "KmsKeyIdentifier",
    "AWS::S3::Bucket": "BucketEncryption",
}


def key_grants(stacks: Stacks, stack: str) -> list[set[str]]:
    """What each statement of the function's role in one stack allows it to do with the key."""
    return [
        set(as_list(statement["Action"]))
        for statement in statements(stacks[stack])
        if '"Fn::ImportValue": "Keys:' in json.dumps(statement["Resource"])
    ]


def role_actions(stacks: Stacks, stack: str) -> set[str]:
    """What the role of a stack's function may do with the key, all statements together."""
    return set().union(*key_grants(stacks, stack))


def key_statement(stacks: Stacks, service: str) -> dict[str, Any]:
    """The statement of the key's own policy for one service."""
    (found,) = [
        statement
        for statement in statements(stacks["Keys"], "AWS::KMS::Key")
        if service in json.dumps(statement["Principal"])
    ]
    return found


def test_everything_at_rest_uses_the_key(keyed: Stacks) -> None:
    seen = set()
    for name, template in keyed.items():
        for resource in template.resources.values():
            if resource["Type"] in ENCRYPTED and name != "Keys":
                seen.add(resource["Type"])
                assert "Keys:" in json.dumps(resource["Properties"][ENCRYPTED[resource["Type"]]])
    assert seen == set(ENCRYPTED)


def test_without_a_key_nothing_mentions_kms(sandbox: Stacks) -> None:
    for template in sandbox.values():
        assert "kms" not in json.dumps(template.json).lower()


class TestEachFailurePath:
    """From who writes, over the encrypted place, to who reads; the rows of a table that must have no hole."""

    def test_queue_consumer_decrypts_messages(self, keyed: Stacks) -> None:
        assert {"kms:Decrypt"} in key_grants(keyed, "Queue")

    def test_queue_moves_dead_letters_itself_under_the_same_key(self, keyed: Stacks) -> None:
        queue = keyed["Queue"]
        assert queue.at("Queue/Orders")["KmsMasterKeyId"] == queue.at("Queue/OrdersDeadLetters")["KmsMasterKeyId"]

    def test_eventbridge_sends_undelivered_events(self, keyed: Stacks) -> None:
        statement = key_statement(keyed, "events.amazonaws.com")
        assert set(as_list(statement["Action"])) >= SEND
        assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        assert statement["Resource"] == "*"

    def test_lambda_sends_failed_receipts_in_the_functions_name(self, keyed: Stacks) -> None:
        assert SEND in key_grants(keyed, "Events")

    def test_lambda_puts_failed_records_in_the_functions_name(self, keyed: Stacks) -> None:
        assert SEND in key_grants(keyed, "Stream")

    def test_stream_consumer_decrypts_records(self, keyed: Stacks) -> None:
        assert {"kms:Decrypt"} in key_grants(keyed, "Stream")

    @pytest.mark.parametrize("stack", ["Queue", "Events", "Stream"])
    def test_functions_read_and_write_their_tables(self, keyed: Stacks, stack: str) -> None:
        assert role_actions(keyed, stack) == TABLE

    def test_logs_are_written(self, keyed: Stacks) -> None:
        statement = key_statement(keyed, '"logs."')
        assert set(as_list(statement["Action"])) == TABLE
        context = statement["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"]
        assert context["Fn::Join"][1][-1] == ":log-group:*"


class TestOnlyTheNeededGrants:
    """One role adds up what several paths need; with plain tables only the queues' part remains."""

    @pytest.mark.parametrize(
        ("make", "wanted"), [(QueueStack, {"kms:Decrypt"}), (EventsStack, SEND)], ids=["consumer", "sender"]
    )
    def test_with_plain_tables(self, make: type[QueueStack | EventsStack], wanted: set[str]) -> None:
        app = new_app()
        stack = make(
            app,
            "Stack",
            records=IdempotencyStack(app, "Idempotency").records,
            provider=http_binding("https://provider.example.com", key_lifetime=30 * 86_400),
            encryption_key=kms.Key(Stack(app, "Keys"), "Key"),
        )
        assert role_actions(synthesized([stack]), "Stack") == wanted


def test_an_imported_key_warns_with_the_statement_it_needs() -> None:
    arn = "arn:aws:kms:eu-central-1:111122223333:key/00000000-0000-0000-0000-000000000000"
    stacks = build_with(key=lambda stack: kms.Key.from_key_arn(stack, "Key", arn))
    events = next(stack for stack in stacks if stack.node.id == "Events")
    for service in ("events.amazonaws.com", r"logs\."):
        Annotations.from_stack(events).has_warning(
            "*",
            Match.string_like_regexp(f"imported key cannot be changed from here. It must allow {service}"),
        )
