"""Operations: claim, run, complete, replay, release, takeover and fence, over a real table in memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyInconsistentStateError
from botocore.exceptions import ClientError

from shared import aws
from shared.errors import (
    DeadlineError,
    FingerprintMismatchError,
    InProgressError,
    KeyPartError,
    RecordFormatError,
    ResultError,
    StoreError,
)
from shared.invocation import invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Effect, Operation


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: Decimal = Decimal("10.00")


@dataclass(frozen=True)
class Receipt:
    charge_id: str
    amount: Decimal
    at: datetime
    lines: list[str]
    note: str | None = None


RECEIPT = Receipt("c-1", Decimal("10.00"), datetime(2026, 1, 5, 10, tzinfo=UTC), ["a"])
KEY = IdempotencyKey("charge/v1", ("o-1",))


def charging(run: Callable[[], Any] = lambda: RECEIPT, name: str = "charge/v1") -> Effect[Order, Receipt]:
    """An operation whose effect is `run`."""

    def charge(order: Order, key: IdempotencyKey) -> Receipt:
        result: Receipt = run()
        return result

    return Operation(name, key=business_key("orderId"), result=Receipt).effect(charge)


def deliver(effect: Effect[Any, Any], value: Any, context: Any) -> Any:
    with invocation(context):
        return effect(value)


class TestReplay:
    def test_replay_is_equal_and_of_the_same_types(self, context: Any, records: Any, output: Any) -> None:
        runs: list[int] = []
        effect = charging(lambda: (runs.append(1), RECEIPT)[1])
        first = deliver(effect, Order("o-1"), context)
        replayed = deliver(effect, Order("o-1"), context)
        assert first == replayed == RECEIPT
        assert type(replayed.amount) is Decimal
        assert replayed.at.tzinfo is not None
        assert runs == [1]
        seen = output()
        assert seen.outcomes == ["executed", "replayed"]
        assert {line["record_id"] for line in seen.logs} == {KEY.record_id} == {records.only()["id"]["S"]}

    @pytest.mark.parametrize(
        ("declared", "value"), [(int, 0), (bool, False), (str, ""), (list[int], []), (dict[str, int], {})]
    )
    def test_falsy_results_replay_as_themselves(self, context: Any, records: Any, declared: Any, value: Any) -> None:
        runs: list[int] = []

        def run(order: Order, key: IdempotencyKey) -> Any:
            runs.append(1)
            return value

        run.__annotations__["return"] = declared
        effect = Operation("falsy/v1", key=business_key("orderId"), result=declared).effect(run)
        results = [deliver(effect, Order("o-1"), context) for _ in range(3)]
        assert results == [value] * 3
        assert [type(result) for result in results] == [type(value)] * 3
        assert runs == [1]
        assert records.only()["status"]["S"] == "COMPLETED_FALSY"

    def test_no_result_replays_as_none(self, context: Any, records: Any) -> None:
        runs: list[int] = []

        def run(order: Order, key: IdempotencyKey) -> None:
            runs.append(1)

        effect = Operation("none/v1", key=business_key("orderId"), result=type(None)).effect(run)
        assert [deliver(effect, Order("o-1"), context) for _ in range(2)] == [None, None]
        assert runs == [1]
        assert records.only()["status"]["S"] == "COMPLETED"

    def test_after_the_record_lifetime_the_operation_runs_again(self, context: Any, records: Any, output: Any) -> None:
        effect = charging()
        deliver(effect, Order("o-1"), context)
        assert abs(int(records.only()["expiration"]["N"]) - time.time() - 864_000) < 2
        records.end_lifetime()
        deliver(effect, Order("o-1", Decimal("7")), context)
        assert output().outcomes == ["executed", "executed"], "an expired record is none: no takeover either"

    def test_two_parts_of_a_detail_make_one_key(self, context: Any) -> None:
        @dataclass(frozen=True)
        class Interaction:
            interaction_id: str
            type: str
            time: str

        runs: list[str] = []

        def run(interaction: Interaction, key: IdempotencyKey) -> None:
            runs.append(interaction.type)

        run.__annotations__["interaction"] = Interaction
        names = ("interactionId", "type")
        operation = Operation("note/v1", key=business_key(*names), result=type(None), fingerprint=names)
        effect = operation.effect(run)
        for kind, at in (("started", "10:00"), ("started", "10:01"), ("ended", "10:02")):
            deliver(effect, Interaction("int-1", kind, at), context)
        assert runs == ["started", "ended"]

    def test_a_key_is_trimmed_and_normalised_and_so_is_its_comparison(self, context: Any, output: Any) -> None:
        effect = charging()
        for text in ("caf\u00e9", " cafe\u0301 "):
            deliver(effect, Order(text), context)
        assert output().outcomes == ["executed", "replayed"]

    def test_a_bad_key_part_is_refused_before_any_claim(self, context: Any, records: Any) -> None:
        with pytest.raises(KeyPartError, match="key part orderId is blank"):
            deliver(charging(), Order("  "), context)
        assert records.items() == []


class TestLease:
    @pytest.mark.parametrize("remaining_ms", [3_000, 900_000])
    def test_lease_is_the_remaining_time_and_the_margin_cold_and_warm(
        self, context: Any, records: Any, remaining_ms: int
    ) -> None:
        leases: list[float] = []
        effect = charging(lambda: (leases.append(lease_left(records)), RECEIPT)[1])
        for number, remaining in enumerate((remaining_ms, 60_000)):  # the second invocation finds a warm function
            context.remaining_ms = remaining
            records.client.delete_item(TableName="records", Key={"id": {"S": KEY.record_id}})
            deliver(effect, Order("o-1"), context)
            assert abs(leases[number] - (remaining / 1000 + 5)) < 1

    def test_lease_counts_from_the_claim_not_from_the_start(self, context: Any, records: Any) -> None:
        leases: list[float] = []
        effect = charging(lambda: (leases.append(lease_left(records)), RECEIPT)[1])
        with invocation(context):
            context.remaining_ms = 4_000
            effect(Order("o-1"))
        assert abs(leases[0] - 9) < 1

    def test_a_record_lifetime_shorter_than_the_run_does_not_end_the_claim(
        self, context: Any, records: Any, environment: Any
    ) -> None:
        environment.setenv("RECORD_LIFETIME_SECONDS", "1")
        effect = charging(lambda: (seen.append(records.only()), RECEIPT)[1])
        seen: list[Any] = []
        deliver(effect, Order("o-1"), context)
        assert int(seen[0]["expiration"]["N"]) > int(seen[0]["in_progress_expiration"]["N"]) / 1000

    def test_the_local_time_zone_does_not_matter(self, context: Any, records: Any, environment: Any) -> None:
        environment.setenv("TZ", "America/New_York")
        time.tzset()
        try:
            seen: list[float] = []
            deliver(charging(lambda: (seen.append(lease_left(records)), RECEIPT)[1]), Order("o-1"), context)
        finally:
            environment.undo()
            time.tzset()
        assert abs(seen[0] - 15) < 1

    def test_in_progress_says_for_how_long(self, context: Any, output: Any) -> None:
        effect = charging(lambda: deliver(effect, Order("o-1"), context))
        with pytest.raises(InProgressError, match=rf"^record {KEY} is in progress elsewhere for up to 1[45]") as caught:
            deliver(effect, Order("o-1"), context)
        assert 14 < caught.value.seconds_left <= 15
        assert output().outcomes == ["in-progress", "released"]


def lease_left(records: Any) -> float:
    return int(records.only()["in_progress_expiration"]["N"]) / 1000 - time.time()


class TestDeadline:
    def test_nothing_is_begun_that_could_not_end(self, context: Any, records: Any) -> None:
        context.remaining_ms = 1_900
        with pytest.raises(DeadlineError, match=r"^1\.9 s are left; wanted 2\.0 s, what one call may take"):
            deliver(charging(), Order("o-1"), context)
        assert records.items() == []


class TestTakeover:
    def crash(self, context: Any) -> None:
        def stop() -> Any:
            raise SystemExit

        with pytest.raises(SystemExit):
            deliver(charging(stop), Order("o-1"), context)

    def test_a_takeover_is_reported_before_the_effect_and_then_its_outcome(
        self, context: Any, records: Any, output: Any
    ) -> None:
        self.crash(context)
        records.end_lease()
        deliver(charging(), Order("o-1"), context)
        seen = output()
        assert seen.outcomes == ["taken-over", "executed"]
        assert seen.logs[-1]["taken_over"] is True
        assert seen.totals("charge/v1") == {"TakenOver": 1, "Executed": 1}

    def test_the_other_payload_is_refused_also_on_takeover(self, context: Any, records: Any) -> None:
        self.crash(context)
        records.end_lease()
        before = records.only()
        with pytest.raises(FingerprintMismatchError, match=r"other values of amount, orderId; wanted the same"):
            deliver(charging(), Order("o-1", Decimal("99")), context)
        assert records.only() == before

    def test_the_other_payload_is_refused_while_in_progress(self, context: Any) -> None:
        effect = charging(lambda: deliver(effect, Order("o-1", Decimal("99")), context))
        with pytest.raises(FingerprintMismatchError):
            deliver(effect, Order("o-1"), context)

    def test_the_other_payload_is_refused_after_completion(self, context: Any) -> None:
        deliver(charging(), Order("o-1"), context)
        with pytest.raises(FingerprintMismatchError):
            deliver(charging(), Order("o-1", Decimal("99")), context)

    def test_a_record_of_a_newer_format_is_neither_replayed_nor_taken_over(self, context: Any, records: Any) -> None:
        self.crash(context)
        records.end_lease()
        records.change(format={"N": "2"})
        with pytest.raises(RecordFormatError, match=r"has format 2 and status INPROGRESS; wanted format 1 or lower"):
            deliver(charging(), Order("o-1"), context)
        records.change(format={"N": "1"}, status={"S": "PAUSED"})
        with pytest.raises(RecordFormatError, match="status PAUSED"):
            deliver(charging(), Order("o-1"), context)


class TestFailures:
    def test_an_error_of_the_effect_passes_unchanged_and_releases(self, context: Any, records: Any) -> None:
        error = TimeoutError("no answer")

        def fail() -> Any:
            raise error

        with pytest.raises(TimeoutError) as caught:
            deliver(charging(fail), Order("o-1"), context)
        assert caught.value is error
        assert records.items() == []

    def test_the_store_fails_closed_at_the_claim(self, context: Any, environment: Any) -> None:
        environment.setenv("IDEMPOTENCY_TABLE", "no-such-table")
        runs: list[int] = []
        with pytest.raises(
            StoreError,
            match="could not claim, the table no-such-table answered ResourceNotFoundException; the effect did not",
        ) as caught:
            deliver(charging(lambda: runs.append(1)), Order("o-1"), context)
        assert isinstance(caught.value.__cause__, ClientError)
        assert runs == []

    def test_the_store_failing_at_completion_says_that_the_effect_ran(
        self, context: Any, records: Any, refuse: Any
    ) -> None:
        refuse("UpdateItem")
        with pytest.raises(StoreError, match=r"could not complete.* answered AccessDeniedException; the effect ran"):
            deliver(charging(), Order("o-1"), context)
        assert records.only()["status"]["S"] == "INPROGRESS"

    def test_the_store_failing_at_release_does_not_mask_the_error(
        self, context: Any, records: Any, output: Any, refuse: Any
    ) -> None:
        def fail() -> Any:
            raise TimeoutError

        refuse("DeleteItem")
        with pytest.raises(TimeoutError):
            deliver(charging(fail), Order("o-1"), context)
        assert records.only()["status"]["S"] == "INPROGRESS"
        assert output().totals("charge/v1") == {"ReleaseFailed": 1}

    @pytest.mark.parametrize(
        ("result", "found"),
        [
            ({"chargeId": "c-1"}, "charge/v1 result has a value of type dict; wanted Receipt"),
            (
                Receipt("c", Decimal("NaN"), RECEIPT.at, []),
                "charge/v1 result.amount has a value of type Decimal; wanted finite Decimal",
            ),
            (
                Receipt("c" * 300_001, Decimal(1), RECEIPT.at, []),
                "bytes of JSON; wanted at most 300000: return ids",
            ),
        ],
    )
    def test_a_result_that_cannot_be_stored_releases_and_names_it(
        self, context: Any, records: Any, result: Any, found: str
    ) -> None:
        with pytest.raises(ResultError, match=found):
            deliver(charging(lambda: result), Order("o-1"), context)
        assert records.items() == []

    @pytest.mark.parametrize("data", ['{"chargeId": "c"}', "oops", "5", ""])
    def test_a_stored_result_that_does_not_fit_is_raised_never_run_again(
        self, context: Any, records: Any, data: str
    ) -> None:
        deliver(charging(), Order("o-1"), context)
        records.change(data={"S": data})
        with pytest.raises(RecordFormatError, match=r"a changed result needs a new version of the operation"):
            deliver(charging(), Order("o-1"), context)

    def test_a_retry_that_powertools_makes_never_runs_an_effect_twice(self, context: Any, records: Any) -> None:
        runs: list[int] = []

        def fail() -> Any:
            runs.append(1)
            raise IdempotencyInconsistentStateError("from stock code inside the effect")

        with pytest.raises(IdempotencyInconsistentStateError):
            deliver(charging(fail), Order("o-1"), context)
        assert runs == [1]
        assert records.items() == []


@pytest.fixture
def refuse() -> Callable[[str], None]:
    """Let the table refuse every request of an operation, without applying it."""

    def build(operation: str) -> None:
        def on_answer(response_dict: dict[str, Any], **_: Any) -> None:
            response_dict.update(status_code=400, body=b'{"__type": "AccessDeniedException", "message": "no"}')

        def on_request(params: dict[str, Any], **_: Any) -> None:
            params["body"] = params["body"].replace(b'"TableName": "records"', b'"TableName": "nowhere"')

        events = aws.dynamodb().meta.events
        events.register(f"before-call.dynamodb.{operation}", on_request)
        events.register(f"before-parse.dynamodb.{operation}", on_answer)

    return build
