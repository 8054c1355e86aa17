"""Unknown outcomes and failures for good: what is parked, repeated, remembered, and how a person resolves it."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from shared import resolve
from shared.aws import dynamodb
from shared.errors import FenceLostError, FingerprintMismatchError, InProgressError, ParkedError, RecordFormatError
from shared.invocation import invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Effect, Operation
from shared.provider import ProviderDeclinedError, ProviderUnavailableError

KEY = IdempotencyKey("mail/v1", ("o-1",))


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: int = 1


class NeverSentError(Exception):
    """The effect surely did not happen."""


def mailing(run: Callable[[], Any] = lambda: "sent", policy: str = "park", **options: Any) -> Effect[Order, str]:
    def mail(order: Order, key: IdempotencyKey) -> str:
        result: str = run()
        return result

    options = {"on_unknown_outcome": policy, **options}
    return Operation("mail/v1", key=business_key("orderId"), result=str, **options).effect(mail)


def deliver(effect: Effect[Order, str], context: Any, amount: int = 1) -> str:
    with invocation(context):
        return effect(Order("o-1", amount))


def raising(error: BaseException) -> Callable[[], Any]:
    def run() -> Any:
        raise error

    return run


def crash(context: Any, policy: str = "park") -> None:
    with pytest.raises(SystemExit):
        deliver(mailing(raising(SystemExit()), policy), context)


class TestPark:
    def test_a_crash_parks_at_the_next_delivery_after_the_lease_and_stays_parked(
        self, context: Any, records: Any, output: Any
    ) -> None:
        crash(context)
        assert "expiration" not in records.only(), "TTL must not forget a claim whose outcome nobody knows"
        with pytest.raises(InProgressError):
            deliver(mailing(), context)
        records.end_lease()
        written: list[str] = []
        dynamodb().meta.events.register("provide-client-params.dynamodb", lambda model, **_: written.append(model.name))
        for _ in range(2):
            with pytest.raises(ParkedError, match=rf"record {KEY} is parked.*wanted a person to resolve it"):
                deliver(mailing(raising(AssertionError())), context)
        assert written == ["PutItem", "UpdateItem", "PutItem"]
        assert records.only()["status"] == {"S": "PARKED"}
        assert "expiration" not in records.only()
        assert output().totals("mail/v1") == {"InProgress": 1, "Parked": 2}

    def test_every_error_of_the_effect_parks_and_stays_attached(self, context: Any, records: Any) -> None:
        error = TimeoutError("no answer")
        with pytest.raises(ParkedError) as caught:
            deliver(mailing(raising(error)), context)
        assert caught.value.__cause__ is error
        assert records.only()["status"] == {"S": "PARKED"}
        assert "expiration" not in records.only()

    def test_a_result_that_cannot_be_stored_parks(self, context: Any, records: Any) -> None:
        with pytest.raises(ParkedError):
            deliver(mailing(lambda: 5), context)
        assert records.only()["status"] == {"S": "PARKED"}

    def test_an_error_declared_as_did_not_happen_releases(self, context: Any, records: Any) -> None:
        with pytest.raises(NeverSentError):
            deliver(mailing(raising(NeverSentError()), did_not_happen=(NeverSentError,)), context)
        assert records.items() == []

    def test_success_completes_and_then_expires_as_any_record(self, context: Any, records: Any, output: Any) -> None:
        assert [deliver(mailing(), context) for _ in range(2)] == ["sent", "sent"]
        assert abs(int(records.only()["expiration"]["N"]) - time.time() - 864_000) < 2
        assert output().outcomes == ["executed", "replayed"]

    def test_the_attempt_that_was_parked_by_another_may_still_complete(self, context: Any, records: Any) -> None:
        def late() -> str:
            records.end_lease()
            with pytest.raises(ParkedError):
                deliver(mailing(), context)
            return "sent late"

        assert deliver(mailing(late), context) == "sent late"
        assert deliver(mailing(), context) == "sent late"

    def test_another_payload_is_refused_before_it_parks(self, context: Any, records: Any) -> None:
        crash(context)
        records.end_lease()
        with pytest.raises(FingerprintMismatchError):
            deliver(mailing(), context, amount=2)
        assert records.only()["status"] == {"S": "STARTED"}

    @pytest.mark.parametrize(("first", "then"), [("park", "retry"), ("retry", "park")])
    def test_a_change_of_the_declaration_never_repeats(self, context: Any, records: Any, first: str, then: str) -> None:
        crash(context, first)
        records.end_lease()
        with pytest.raises(ParkedError):
            deliver(mailing(raising(AssertionError()), then), context)

    def test_a_store_that_does_not_answer_does_not_mask_that_it_parks(self, context: Any, records: Any) -> None:
        def fail() -> Any:
            records.client.delete_table(TableName="records")
            raise TimeoutError

        with pytest.raises(ParkedError):
            deliver(mailing(fail), context)


class TestKeyLifetime:
    """`retry` repeats with the same key, and only while the provider remembers that key."""

    @pytest.mark.parametrize(("started_ago", "parks"), [(50, False), (89, False), (91, True), (5_000, True)])
    def test_a_takeover_parks_once_the_key_may_be_forgotten(
        self, context: Any, records: Any, environment: Any, started_ago: int, parks: bool
    ) -> None:
        environment.setenv("PROVIDER_KEY_LIFETIME_SECONDS", "100")  # 10 s of them the attempt itself may take
        crash(context, "retry")
        records.end_lease()
        records.change(started={"N": str(int(time.time()) - started_ago)})
        if parks:
            with pytest.raises(ParkedError):
                deliver(mailing(raising(AssertionError()), "retry"), context)
            assert records.only()["status"] == {"S": "PARKED"}
            assert "expiration" not in records.only(), "TTL must not delete what nobody has resolved"
        else:
            assert deliver(mailing(policy="retry"), context) == "sent"

    def test_a_takeover_keeps_the_time_of_the_first_claim(self, context: Any, records: Any) -> None:
        crash(context, "retry")
        started = {"N": str(int(time.time()) - 5_000)}
        for _ in range(2):
            records.end_lease()
            records.change(started=started)
            crash(context, "retry")
            assert records.only()["started"] == started

    def test_without_a_lifetime_a_takeover_is_always_allowed(
        self, context: Any, records: Any, environment: Any
    ) -> None:
        environment.setenv("PROVIDER_KEY_LIFETIME_SECONDS", "0")
        crash(context, "retry")
        records.end_lease()
        records.change(started={"N": "1"})
        assert deliver(mailing(policy="retry"), context) == "sent"


class TestPermanentFailures:
    def declining(self, run: Callable[[], Any], policy: str = "retry") -> Effect[Order, str]:
        return mailing(run, policy, permanent=(ProviderDeclinedError,))

    @pytest.mark.parametrize("policy", ["retry", "park"])
    def test_a_declared_failure_is_remembered_and_raised_again(
        self, context: Any, records: Any, output: Any, policy: str
    ) -> None:
        for run in (raising(ProviderDeclinedError("no funds")), raising(AssertionError())):
            with pytest.raises(ProviderDeclinedError, match=r"^no funds$"):
                deliver(self.declining(run, policy), context)
        item = records.only()
        assert item["status"] == {"S": "FAILED"}
        assert abs(int(item["expiration"]["N"]) - time.time() - 864_000) < 2
        assert output().outcomes == ["remembered", "replayed"]

    def test_another_failure_is_not_remembered(self, context: Any, records: Any) -> None:
        with pytest.raises(ProviderUnavailableError):
            deliver(self.declining(raising(ProviderUnavailableError("late"))), context)
        assert records.items() == []

    def test_a_failure_that_is_declared_no_more_is_raised_on(self, context: Any) -> None:
        with pytest.raises(ProviderDeclinedError):
            deliver(self.declining(raising(ProviderDeclinedError("no"))), context)
        with pytest.raises(RecordFormatError, match="needs a new version of the operation"):
            deliver(mailing(policy="retry"), context)

    def test_another_payload_is_refused_after_it(self, context: Any) -> None:
        with pytest.raises(ProviderDeclinedError):
            deliver(self.declining(raising(ProviderDeclinedError("no"))), context)
        with pytest.raises(FingerprintMismatchError):
            deliver(self.declining(raising(AssertionError())), context, amount=2)


class TestResolve:
    def run(self, *arguments: str) -> int:
        return resolve.main(["--table", "records", *arguments])

    def park(self, context: Any, capsys: Any) -> None:
        with pytest.raises(ParkedError):
            deliver(mailing(raising(TimeoutError())), context)
        capsys.readouterr()

    def test_parked_records_are_listed(self, context: Any, capsys: Any) -> None:
        self.park(context, capsys)
        assert self.run("list") == 0
        assert capsys.readouterr().out.startswith(f"{KEY} started 17")

    @pytest.mark.parametrize("result", ["sent by hand", ""])
    def test_what_happened_is_replayed_from_then_on(self, context: Any, records: Any, capsys: Any, result: str) -> None:
        self.park(context, capsys)
        assert self.run("happened", KEY.record_id, json.dumps(result), "--lifetime-days", "2") == 0
        assert deliver(mailing(raising(AssertionError())), context) == result
        assert abs(int(records.only()["expiration"]["N"]) - time.time() - 2 * 86_400) < 2
        assert records.only()["status"]["S"] == ("COMPLETED" if result else "COMPLETED_FALSY"), "as stock reads it"

    def test_a_late_attempt_does_not_take_the_resolution_for_its_own(
        self, context: Any, records: Any, capsys: Any
    ) -> None:
        def late() -> str:
            records.end_lease()
            with pytest.raises(ParkedError):
                deliver(mailing(), context)
            assert self.run("happened", KEY.record_id, '"by hand"') == 0
            return "sent late"

        with pytest.raises(FenceLostError):
            deliver(mailing(late), context)
        assert deliver(mailing(), context) == "by hand"

    def test_what_did_not_happen_runs_again(self, context: Any, capsys: Any) -> None:
        self.park(context, capsys)
        assert self.run("did-not-happen", KEY.record_id) == 0
        assert deliver(mailing(), context) == "sent"

    @pytest.mark.parametrize("command", [("happened", KEY.record_id, "null"), ("did-not-happen", KEY.record_id)])
    def test_only_a_parked_record_is_touched(
        self, context: Any, records: Any, capsys: Any, command: tuple[str, ...]
    ) -> None:
        deliver(mailing(), context)
        before = records.only()
        assert self.run(*command) == 1
        assert f"record {KEY} is not parked in records" in capsys.readouterr().err
        assert records.only() == before
