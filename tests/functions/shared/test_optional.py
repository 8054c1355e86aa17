"""The optional abilities beside commit: large results, warm cache, fail open, more key strategies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from shared.aws import dynamodb, s3
from shared.commit import Commit, commit
from shared.errors import (
    DeclarationError,
    FenceLostError,
    FingerprintMismatchError,
    KeyPartError,
    RecordFormatError,
    ResultMissingError,
    SettingError,
    StoreError,
)
from shared.fail_open import FailOpen
from shared.invocation import delivery, invocation
from shared.key import IdempotencyKey, KeyBuilder, business_key
from shared.key_strategies import client_key, fingerprint_key, stream_record_key
from shared.large_results import LargeResults
from shared.operation import Effect, Operation
from shared.warm_cache import WarmCache

KEY = IdempotencyKey("report/v1", ("o-1",))
LARGE = "x" * 30_000


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: int = 1


def reporting(run: Callable[[], Any] = lambda: LARGE, **options: Any) -> Effect[Order, str]:
    def report(order: Order, key: IdempotencyKey) -> str:
        result: str = run()
        return result

    return Operation("report/v1", key=business_key("orderId"), result=str, **options).effect(report)


def deliver(effect: Effect[Order, str], context: Any, order_id: str = "o-1", amount: int = 1) -> str:
    with invocation(context):
        return effect(Order(order_id, amount))


@pytest.fixture
def sent(context: Any) -> list[str]:
    """The operations that were asked of DynamoDB and S3, in order."""
    asked: list[str] = []
    for client in (dynamodb(), s3()):
        client.meta.events.register("provide-client-params", lambda model, **_: asked.append(model.name))
    return asked


class TestLargeResults:
    @pytest.fixture(autouse=True)
    def bucket(self, environment: Any, tables: Any) -> Any:
        environment.setenv("RESULTS_BUCKET", "results")
        client = boto3.client("s3")
        client.create_bucket(Bucket="results")
        return client

    def objects(self, bucket: Any) -> list[str]:
        return [found["Key"] for found in bucket.list_objects_v2(Bucket="results").get("Contents", [])]

    def test_only_a_pointer_with_the_owner_is_in_the_record(
        self, context: Any, records: Any, bucket: Any, sent: list[str]
    ) -> None:
        effect = reporting(large_results=LargeResults())
        assert [deliver(effect, context) for _ in range(2)] == [LARGE, LARGE]
        assert sent == ["PutItem", "PutObject", "UpdateItem", "PutItem", "GetObject"]
        item = records.only()
        assert item["status"] == {"S": "COMPLETED_APART"}
        (name,) = self.objects(bucket)
        assert item["data"]["S"] == name == f"results/{KEY.record_id.replace('#', '/')}/{item['owner']['S']}"
        assert sum(len(key) + len(str(next(iter(value.values())))) for key, value in item.items()) < 1024

    def test_a_small_result_stays_inline(self, context: Any, records: Any, bucket: Any) -> None:
        effect = reporting(lambda: "x" * 1022, large_results=LargeResults())
        assert [deliver(effect, context) for _ in range(2)] == ["x" * 1022] * 2
        assert self.objects(bucket) == []
        assert records.only()["status"] == {"S": "COMPLETED"}

    def test_a_result_beyond_the_size_of_an_item_is_kept(self, context: Any) -> None:
        effect = reporting(lambda: "y" * 1_000_000, large_results=LargeResults())
        assert [deliver(effect, context) for _ in range(2)] == ["y" * 1_000_000] * 2

    def test_a_late_attempt_does_not_overwrite_the_winners_result(
        self, context: Any, records: Any, bucket: Any
    ) -> None:
        def late() -> str:
            records.end_lease()
            deliver(reporting(lambda: "second" + LARGE, large_results=LargeResults()), context)
            return "first" + LARGE

        with pytest.raises(FenceLostError):
            deliver(reporting(late, large_results=LargeResults()), context)
        assert len(self.objects(bucket)) == 2
        assert deliver(reporting(large_results=LargeResults()), context) == "second" + LARGE

    def test_a_missing_object_is_an_error_and_never_a_second_run(self, context: Any, bucket: Any) -> None:
        deliver(reporting(large_results=LargeResults()), context)
        (name,) = self.objects(bucket)
        bucket.delete_object(Bucket="results", Key=name)
        runs: list[int] = []
        with pytest.raises(ResultMissingError, match=rf"result {name} is gone from its bucket; wanted it for as long"):
            deliver(reporting(lambda: runs.append(1), large_results=LargeResults()), context)
        assert runs == []

    def test_a_bucket_that_does_not_answer_leaves_the_claim(self, context: Any, records: Any, bucket: Any) -> None:
        bucket.delete_bucket(Bucket="results")
        with pytest.raises(StoreError, match=r"could not complete.*answered NoSuchBucket; the effect ran"):
            deliver(reporting(large_results=LargeResults()), context)
        assert records.only()["status"] == {"S": "INPROGRESS"}

    def test_an_operation_without_the_ability_raises_on_a_pointer(self, context: Any) -> None:
        deliver(reporting(large_results=LargeResults()), context)
        with pytest.raises(RecordFormatError):
            deliver(reporting(), context)

    def test_the_bucket_is_a_setting(self, context: Any, environment: Any, records: Any) -> None:
        environment.delenv("RESULTS_BUCKET")
        with pytest.raises(SettingError, match="RESULTS_BUCKET is not set"):
            deliver(reporting(large_results=LargeResults()), context)

    def test_a_warm_duplicate_of_a_large_result_costs_nothing(self, context: Any, sent: list[str]) -> None:
        effect = reporting(large_results=LargeResults(), cache=WarmCache())
        deliver(effect, context)
        sent.clear()
        assert deliver(effect, context) == LARGE
        assert sent == []


class TestWarmCache:
    def test_a_warm_duplicate_costs_no_request(self, context: Any, sent: list[str], output: Any) -> None:
        effect = reporting(lambda: "x", cache=WarmCache())
        assert [deliver(effect, context) for _ in range(3)] == ["x"] * 3
        assert sent == ["PutItem", "UpdateItem"]
        assert output().outcomes == ["executed", "replayed", "replayed"]

    def test_a_replay_warms_another_environment(self, context: Any, sent: list[str]) -> None:
        deliver(reporting(lambda: "x"), context)
        other = reporting(cache=WarmCache())
        sent.clear()
        assert [deliver(other, context) for _ in range(2)] == ["x", "x"]
        assert sent == ["PutItem"]

    def test_it_never_outlives_the_record(self, context: Any, records: Any, environment: Any) -> None:
        environment.setenv("RECORD_LIFETIME_SECONDS", "59")  # less than the clocks may differ by
        cache = WarmCache()
        deliver(reporting(lambda: "first", cache=cache), context)
        records.end_lifetime()
        assert deliver(reporting(lambda: "second"), context) == "second"
        assert deliver(reporting(cache=cache), context) == "second"

    def test_a_late_attempt_leaves_nothing_in_it(self, context: Any, records: Any) -> None:
        cache = WarmCache()

        def late() -> str:
            records.end_lease()
            deliver(reporting(lambda: "second"), context)
            return "first"

        with pytest.raises(FenceLostError):
            deliver(reporting(late, cache=cache), context)
        assert deliver(reporting(cache=cache), context) == "second"

    def test_another_payload_is_refused_when_warm(self, context: Any) -> None:
        effect = reporting(lambda: "x", cache=WarmCache())
        deliver(effect, context)
        with pytest.raises(FingerprintMismatchError):
            deliver(effect, context, amount=2)

    def test_a_refused_payload_does_not_cool_it(self, context: Any, sent: list[str]) -> None:
        effect = reporting(lambda: "x", cache=WarmCache())
        deliver(effect, context)
        with pytest.raises(FingerprintMismatchError):
            deliver(effect, context, amount=2)
        sent.clear()
        assert deliver(effect, context) == "x"
        assert sent == []

    def test_it_is_bounded_and_forgets_what_was_used_longest_ago(self, context: Any, sent: list[str]) -> None:
        effect = reporting(lambda: "x", cache=WarmCache(at_most=2))
        for order_id in ("a", "b", "a", "c"):
            deliver(effect, context, order_id)
        sent.clear()
        deliver(effect, context, "a")
        assert sent == []
        deliver(effect, context, "b")
        assert sent == ["PutItem"]


class TestFailOpen:
    def test_a_table_that_answers_is_used(self, context: Any, output: Any) -> None:
        opened = FailOpen(reporting(lambda: "x"))
        assert [deliver(opened, context) for _ in range(2)] == ["x", "x"]
        assert output().outcomes == ["executed", "replayed"]

    def test_it_opens_at_the_claim_only(self, context: Any, records: Any) -> None:
        def run() -> str:
            records.client.delete_table(TableName="records")
            return "x"

        with pytest.raises(StoreError, match="could not complete"):
            deliver(FailOpen(reporting(run)), context)

    def test_each_use_is_logged_with_its_cause(self, context: Any, records: Any, output: Any) -> None:
        records.client.delete_table(TableName="records")
        deliver(FailOpen(reporting(lambda: "x")), context)
        (line,) = output().logs
        assert (line["outcome"], line["cause"], line["record_id"]) == (
            "failed-open",
            "ResourceNotFoundException",
            KEY.record_id,
        )

    def test_park_and_commit_are_refused(self) -> None:
        @commit(Operation("report/v1", key=business_key("orderId"), result=str))
        def committed(order: Order, key: IdempotencyKey) -> Commit[str]:
            raise AssertionError

        for effect in (reporting(on_unknown_outcome="park"), committed):
            with pytest.raises(DeclarationError, match="fail open with park or commit; wanted a plain 'retry' effect"):
                FailOpen(effect)


class TestKeyStrategies:
    def test_a_client_key_is_scoped_by_caller_and_route(self) -> None:
        builder = client_key("idempotencyKey", caller="callerId", route="route")
        calls = [
            {"idempotencyKey": "k", "callerId": caller, "route": route}
            for caller, route in (("a", "POST /x"), ("b", "POST /x"), ("a", "POST /y"))
        ]
        assert len({builder.build("x/v1", call).record_id for call in calls}) == 3

    @pytest.mark.parametrize("key", ["a b", "a\n", "\u00e9", "\U0001f600"])
    def test_a_client_key_that_no_header_carries_is_refused(self, key: str) -> None:
        builder = client_key("idempotencyKey", caller="callerId", route="route")
        with pytest.raises(KeyPartError, match="wanted 1 to 255 visible characters"):
            builder.build("x/v1", {"idempotencyKey": key, "callerId": "a", "route": "POST /x"})

    @pytest.mark.parametrize("missing", ["idempotencyKey", "callerId", "route"])
    def test_every_part_of_the_scope_is_required(self, missing: str) -> None:
        payload: dict[str, Any] = {"idempotencyKey": "k", "callerId": "a", "route": "POST /x"}
        del payload[missing]
        with pytest.raises(KeyPartError, match=f"key part {missing} is missing"):
            client_key("idempotencyKey", caller="callerId", route="route").build("x/v1", payload)

    def test_a_fingerprint_takes_any_content_and_its_order_of_names_does_not_matter(self, context: Any) -> None:
        runs: list[int] = []

        @dataclass(frozen=True)
        class Note:
            lines: dict[str, int]
            about: str | None = None

        def run(note: Note, key: IdempotencyKey) -> None:
            runs.append(1)

        run.__annotations__["note"] = Note
        operation = Operation("note/v1", key=fingerprint_key("lines", "about"), result=type(None))
        effect = operation.effect(run)
        with invocation(context):
            for lines in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}):
                effect(Note(lines))
        assert runs == [1, 1]

    def test_a_fingerprint_misses_no_part(self) -> None:
        with pytest.raises(KeyPartError, match="key part about is missing"):
            fingerprint_key("lines", "about").build("note/v1", {"lines": []})

    def test_a_stream_record_may_be_named_by_its_sequence_number(self, context: Any) -> None:
        @dataclass(frozen=True)
        class Record:
            arn: str
            shard: str
            sequence: str

        runs: list[str] = []

        def run(record: Record, key: IdempotencyKey) -> None:
            runs.append(record.sequence)

        run.__annotations__["record"] = Record
        builder = stream_record_key("arn", "shard", "sequence")
        effect = Operation("copy/v1", key=builder, result=type(None)).effect(run)
        with invocation(context) as running, delivery(running, "100"):
            for sequence in ("100", "100", "101"):
                effect(Record("arn:aws:kinesis:::s", "shardId-0", sequence))
        assert runs == ["100", "101"]


@pytest.mark.parametrize(
    "name",
    ["messageId", "receiptHandle", "requestId", "awsRequestId", "eventId", "time", "eventTime", "sentTimestamp"],
)
@pytest.mark.parametrize("build", [business_key, fingerprint_key])
def test_a_name_that_belongs_to_a_delivery_is_refused(build: Callable[..., KeyBuilder], name: str) -> None:
    with pytest.raises(DeclarationError, match=f"key part {name} names a delivery; wanted business data"):
        build("orderId", name)


@pytest.mark.parametrize("value", ["delivery-1", "request-1"])
def test_a_value_that_is_the_id_of_the_delivery_is_refused(context: Any, records: Any, value: str) -> None:
    with (
        invocation(context) as running,
        delivery(running, "delivery-1"),
        pytest.raises(KeyPartError, match="key part orderId is the id of this delivery; wanted business data"),
    ):
        reporting()(Order(value))
    assert records.items() == []
