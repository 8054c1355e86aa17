"""Every fault of the stock decorator that the shared code closes, played twice: stock shows it, ours shows it gone.

A test takes `side`, "stock" or "ours", and says in `shown` what each comes to. Both use the same table in memory.
"""

import contextlib
import datetime
import json
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import (
    IdempotencyAlreadyInProgressError,
    IdempotencyPersistenceLayerError,
    IdempotencyValidationError,
)

from shared.aws import dynamodb
from shared.errors import (
    DeclarationError,
    FenceLostError,
    FingerprintMismatchError,
    InProgressError,
    KeyPartError,
    LoggableError,
    ResultError,
)
from shared.fail_open import FailOpen
from shared.invocation import current_invocation, invocation
from shared.key import IdempotencyKey, business_key
from shared.operation import Operation
from shared.warm_cache import WarmCache

NAME = "charge/v1"
IN_PROGRESS = (IdempotencyAlreadyInProgressError, InProgressError)
both = pytest.mark.parametrize("side", ["stock", "ours"])


@dataclass(frozen=True)
class Order:
    order_id: str
    amount: int = 1
    tenant_id: str | None = None


class DeclinedError(LoggableError):
    """A card is declined."""


def plays(
    side: str, run: Callable[..., Any], context: Any, declared: Any = str, name: str = NAME, **options: Any
) -> Callable[..., Any]:
    """Return a call `(order_id, amount)` of an operation whose effect is `run`, stock or ours."""
    if side == "stock":
        store = options.pop("store", None) or DynamoDBPersistenceLayer(table_name="records")
        settings = {"event_key_jmespath": "[orderId]", "payload_validation_jmespath": "amount", **options}
        config = IdempotencyConfig(hash_function="sha256", raise_on_no_idempotency_key=True, **settings)
        config.register_lambda_context(context)

        @idempotent_function(data_keyword_argument="o", persistence_store=store, config=config, key_prefix=name)
        def stock(*, o: Any) -> Any:
            return run()

        return lambda order_id="o-1", amount=1: stock(o={"orderId": order_id, "amount": amount})

    def effect(order: Order, key: IdempotencyKey) -> Any:
        return run()

    effect.__annotations__["return"] = declared
    options.pop("store", None)
    options = {"result": declared, "fingerprint": ("amount",), **options}
    ours = Operation(name, key=business_key("orderId"), **options).effect(effect)

    def call(order_id: str = "o-1", amount: int = 1) -> Any:
        with invocation(context):
            return ours(Order(order_id, amount))

    return call


def raising(error: BaseException) -> Callable[[], Any]:
    def run() -> Any:
        raise error

    return run


def crash(side: str, context: Any) -> None:
    with pytest.raises(SystemExit):
        plays(side, raising(SystemExit()), context)()


@dataclass
class Shown:
    """What a side came to; `stock` and `ours` say what it must be."""

    side: str
    found: list[Any] = field(default_factory=list)

    def must_be(self, *, stock: list[Any], ours: list[Any]) -> None:
        assert self.found == (stock if self.side == "stock" else ours)


@both
def test_nested_operations_keep_their_records_apart(side: str, context: Any, records: Any) -> None:
    store = DynamoDBPersistenceLayer(table_name="records")
    inner = plays(side, lambda: "inner", context, name="inner/v1", store=store)
    outer = plays(side, lambda: (inner(), "outer")[1], context, name="outer/v1", store=store)
    outer()
    shown = Shown(side, sorted((item["id"]["S"].split("/")[0], item["status"]["S"]) for item in records.items()))
    shown.must_be(
        stock=[("inner", "COMPLETED"), ("outer", "INPROGRESS")], ours=[("inner", "COMPLETED"), ("outer", "COMPLETED")]
    )


@both
def test_operations_in_threads_get_their_own_results(side: str, context: Any, records: Any) -> None:
    """Both effects run at once; what is stored under the first one's prefix must be the first one's result."""
    store, barrier = DynamoDBPersistenceLayer(table_name="records"), threading.Barrier(2)
    calls = [
        plays(side, lambda n=n: (barrier.wait(5), f"result {n}")[1], context, name=f"op-{n}/v1", store=store)
        for n in (1, 2)
    ]
    results: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda n=n: results.update({n: calls[n]()})) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    stored = {
        item["id"]["S"].split("/")[0]: json.loads(item["data"]["S"]) for item in records.items() if "data" in item
    }
    right = {"op-1": "result 1", "op-2": "result 2"}
    assert (stored == right) is (side == "ours"), stored


@both
def test_a_second_declaration_is_not_ignored(side: str, context: Any) -> None:
    """On stock, the first configuration of a shared layer wins: the second key expression is never used."""
    store, runs = DynamoDBPersistenceLayer(table_name="records"), list[int]()
    if side == "stock":
        plays(side, lambda: "x", context, store=store, event_key_jmespath="[amount]")("o-0", 1)
    else:
        plays(side, lambda: "x", context, store=store, name="other/v1")("o-0", 1)
    second = plays(side, lambda: runs.append(1) or "y", context, store=store, name="second/v1")
    for order_id in ("o-1", "o-2"):
        second(order_id, 1)
    Shown(side, runs).must_be(stock=[1], ours=[1, 1])


@both
def test_a_context_registered_late_does_not_void_the_lease(side: str, context: Any, records: Any) -> None:
    """A warm function whose context is registered inside the effect claims with the last invocation's context."""
    leases: list[bool] = []

    def run() -> str:
        leases.append(int(records.only()["in_progress_expiration"]["N"]) > time.time() * 1000 + 1000)
        return "x"

    class Spent:
        aws_request_id = "request-0"

        def get_remaining_time_in_millis(self) -> int:
            return 0

    call = plays(side, run, Spent() if side == "stock" else context)
    call()
    Shown(side, leases).must_be(stock=[False], ours=[True])


@both
def test_a_call_outside_an_invocation_is_not_blocked_for_an_hour(side: str, context: Any, records: Any) -> None:
    if side == "stock":
        with warnings.catch_warnings(), pytest.raises(SystemExit):
            warnings.simplefilter("ignore")
            plays(side, raising(SystemExit()), None)()
        assert "in_progress_expiration" not in records.only()
        with pytest.raises(IdempotencyAlreadyInProgressError):
            plays(side, lambda: "x", context)()
    else:
        with pytest.raises(LoggableError, match="no invocation is registered here"):
            current_invocation()


class TestFence:
    """The first attempt outlives its lease; a second one takes over and completes; then the first one ends."""

    def late(self, side: str, context: Any, records: Any, end: Callable[[], Any]) -> None:
        def run() -> Any:
            records.end_lease()
            plays(side, lambda: "second", context)()
            return end()

        with contextlib.suppress(FenceLostError, TimeoutError):
            plays(side, run, context)()

    @both
    def test_a_late_success_does_not_overwrite(self, side: str, context: Any, records: Any) -> None:
        self.late(side, context, records, lambda: "first")
        Shown(side, [json.loads(records.only()["data"]["S"])]).must_be(stock=["first"], ours=["second"])

    @both
    def test_a_late_failure_does_not_delete(self, side: str, context: Any, records: Any) -> None:
        self.late(side, context, records, raising(TimeoutError()))
        Shown(side, [len(records.items())]).must_be(stock=[0], ours=[1])

    @both
    def test_a_completion_does_not_recreate_a_record(self, side: str, context: Any, records: Any) -> None:
        def run() -> str:
            records.client.delete_item(TableName="records", Key={"id": records.only()["id"]})
            return "x"

        with contextlib.suppress(FenceLostError):
            plays(side, run, context)()
        Shown(side, [len(records.items())]).must_be(stock=[1], ours=[0])


@both
def test_a_short_lifetime_does_not_end_a_running_claim(side: str, context: Any, records: Any, environment: Any) -> None:
    environment.setenv("RECORD_LIFETIME_SECONDS", "1")
    options: dict[str, Any] = {"expires_after_seconds": 1} if side == "stock" else {}
    seen: list[bool] = []

    def run() -> str:
        item = records.only()
        seen.append(int(item["expiration"]["N"]) * 1000 > int(item["in_progress_expiration"]["N"]))
        return "x"

    plays(side, run, context, **options)()
    Shown(side, seen).must_be(stock=[False], ours=[True])


@both
def test_the_effect_gets_its_key(side: str, context: Any, records: Any) -> None:
    keys: list[Any] = []
    if side == "stock":
        store = DynamoDBPersistenceLayer(table_name="records")

        @idempotent_function(data_keyword_argument="order", persistence_store=store, key_prefix=NAME)
        def stock(order: dict[str, Any], **more: Any) -> None:
            keys.extend(more.values())

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stock(order={"orderId": "o-1"})
        assert keys == []
    else:

        def ours(order: Order, key: IdempotencyKey) -> None:
            keys.append(key.record_id)

        with invocation(context):
            Operation(NAME, key=business_key("orderId"), result=type(None)).effect(ours)(Order("o-1"))
        assert keys == [records.only()["id"]["S"]]


@both
def test_work_that_tolerates_duplicates_can_fail_open(side: str, context: Any, environment: Any, output: Any) -> None:
    environment.setenv("IDEMPOTENCY_TABLE", "nowhere")
    runs: list[int] = []
    if side == "stock":
        store = DynamoDBPersistenceLayer(table_name="nowhere")
        with pytest.raises(IdempotencyPersistenceLayerError):
            plays(side, lambda: runs.append(1), context, store=store)()
    else:

        def effect(order: Order, key: IdempotencyKey) -> str:
            runs.append(1)
            return "x"

        opened = FailOpen(Operation(NAME, key=business_key("orderId"), result=str).effect(effect))
        with invocation(context):
            assert opened(Order("o-1")) == "x"
        seen = output()
        assert seen.totals(NAME) == {"FailedOpen": 1}
        assert seen.outcomes == ["failed-open"]
    Shown(side, runs).must_be(stock=[], ours=[1])


class TestResults:
    @both
    @pytest.mark.parametrize("value", [{1}, b"x", datetime.datetime(2026, 1, 1), object()])
    def test_what_cannot_be_stored_is_refused_before_the_effect(
        self, side: str, context: Any, records: Any, value: Any
    ) -> None:
        runs: list[int] = []
        if side == "stock":
            call = plays(side, lambda: (runs.append(1), value)[1], context)
            for _ in range(2):
                with pytest.raises((IdempotencyPersistenceLayerError, TypeError)):
                    call()
                records.end_lease()
        elif isinstance(value, datetime.datetime):
            call = plays(side, lambda: (runs.append(1), value)[1], context, declared=datetime.datetime)
            assert [call(), call()] == [value, value]
        else:
            with pytest.raises(DeclarationError, match="result is declared as"):
                plays(side, lambda: runs.append(1), context, declared=type(value))
        Shown(side, runs).must_be(stock=[1, 1], ours=[1] if isinstance(value, datetime.datetime) else [])

    @both
    def test_a_result_too_large_for_an_item_does_not_leave_a_claim_behind(
        self, side: str, context: Any, records: Any
    ) -> None:
        with pytest.raises((IdempotencyPersistenceLayerError, ResultError)):
            plays(side, lambda: "x" * 410_000, context)()
        Shown(side, [item["status"]["S"] for item in records.items()]).must_be(stock=["INPROGRESS"], ours=[])

    @both
    @pytest.mark.parametrize(
        ("declared", "value", "stock"),
        [
            (int, 0, None),
            (bool, False, None),
            (str, "", None),
            (list[int], [], None),
            (dict[str, int], {}, None),
            (Decimal, Decimal("1.10"), "1.10"),
            (Order, Order("o-1"), {"order_id": "o-1", "amount": 1, "tenant_id": None}),
        ],
    )
    def test_a_replay_equals_the_first_result(
        self, side: str, context: Any, declared: Any, value: Any, stock: Any
    ) -> None:
        call = plays(side, lambda: value, context, declared=declared)
        first, replayed = call(), call()
        assert first == value
        assert replayed == (stock if side == "stock" else value)
        assert type(replayed) is (type(stock) if side == "stock" else type(value))

    @both
    def test_no_result_replays_as_none_without_a_second_run(self, side: str, context: Any) -> None:
        runs: list[int] = []
        call = plays(side, lambda: runs.append(1), context, declared=type(None))
        assert [call(), call()] == [None, None]
        assert runs == [1]


@both
def test_a_failure_for_good_is_remembered(side: str, context: Any) -> None:
    runs: list[int] = []

    def run() -> str:
        runs.append(1)
        raise DeclinedError("no")

    options: dict[str, Any] = {} if side == "stock" else {"permanent": (DeclinedError,)}
    call = plays(side, run, context, **options)
    for _ in range(2):
        with pytest.raises(DeclinedError):
            call()
    Shown(side, runs).must_be(stock=[1, 1], ours=[1])


@both
def test_a_half_missing_composite_key_is_refused(side: str, context: Any) -> None:
    runs: list[str] = []
    if side == "stock":
        config = IdempotencyConfig(event_key_jmespath="[orderId, tenantId]", raise_on_no_idempotency_key=True)
        config.register_lambda_context(context)
        store = DynamoDBPersistenceLayer(table_name="records")

        @idempotent_function(data_keyword_argument="order", persistence_store=store, config=config)
        def stock(order: dict[str, Any]) -> None:
            runs.append(order["of"])

        for tenant in ("a", "b"):
            stock(order={"orderId": "o-1", "of": tenant})  # tenantId misplaced: both share one record
    else:

        @dataclass(frozen=True)
        class Tenanted:
            order_id: str
            tenant_id: str

        builder = business_key("orderId", "tenantId")
        for payload in ({"orderId": "o-1"}, {"orderId": "o-1", "tenantId": None}, {"orderId": "o-1", "tenantId": ""}):
            with pytest.raises(KeyPartError, match="key part tenantId is"):
                builder.build(NAME, payload)
    Shown(side, runs).must_be(stock=["a"], ours=[])


@both
@pytest.mark.parametrize("order_id", [None, "   "])
def test_a_missing_or_blank_key_never_runs_unprotected(side: str, context: Any, order_id: Any) -> None:
    runs: list[int] = []
    if side == "stock":
        config = IdempotencyConfig(event_key_jmespath="orderId")
        config.register_lambda_context(context)
        store = DynamoDBPersistenceLayer(table_name="records")

        @idempotent_function(data_keyword_argument="order", persistence_store=store, config=config)
        def stock(order: dict[str, Any]) -> None:
            runs.append(1)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stock(order={"orderId": order_id})
    else:
        with pytest.raises(KeyPartError, match="key part orderId is"):
            business_key("orderId").build(NAME, {"orderId": order_id})
    Shown(side, runs).must_be(stock=[1], ours=[])


@both
def test_a_composed_and_a_decomposed_accent_are_one_key(side: str, context: Any) -> None:
    runs: list[int] = []
    call = plays(side, lambda: runs.append(1) or "x", context)
    for order_id in ("caf\u00e9", "cafe\u0301"):
        call(order_id)
    Shown(side, runs).must_be(stock=[1, 1], ours=[1])


class TestLostResponses:
    """The first request is applied, its response lost; the SDK sends it again and meets its own write."""

    @both
    def test_a_claim_does_not_block_itself(self, side: str, context: Any, environment: Any, lose_response: Any) -> None:
        runs: list[int] = []
        store = DynamoDBPersistenceLayer(table_name="records", boto3_client=dynamodb())
        lose_response("PutItem")
        call = plays(side, lambda: runs.append(1) or "x", context, store=store)
        if side == "stock":
            with pytest.raises(IdempotencyAlreadyInProgressError):
                call()
        else:
            assert call() == "x"
        Shown(side, runs).must_be(stock=[], ours=[1])


class TestOtherPayload:
    @both
    def test_it_is_refused_on_takeover(self, side: str, context: Any, records: Any) -> None:
        crash(side, context)
        records.end_lease()
        call = plays(side, lambda: "x", context)
        if side == "stock":
            assert call(amount=99) == "x"
        else:
            with pytest.raises(FingerprintMismatchError):
                call(amount=99)

    @both
    def test_it_is_refused_while_in_progress_and_after(self, side: str, context: Any, records: Any) -> None:
        crash(side, context)
        refused = (IdempotencyValidationError, FingerprintMismatchError)
        with pytest.raises(refused):
            plays(side, lambda: "x", context)(amount=99)
        records.end_lease()
        plays(side, lambda: "x", context)()
        with pytest.raises(refused):
            plays(side, lambda: "x", context)(amount=99)

    @both
    def test_it_is_refused_when_warm(self, side: str, context: Any) -> None:
        options: dict[str, Any] = {"use_local_cache": True} if side == "stock" else {"cache": WarmCache()}
        call = plays(side, lambda: "x", context, **options)
        call()
        with pytest.raises((IdempotencyValidationError, FingerprintMismatchError)):
            call(amount=99)


@both
def test_an_error_of_the_store_does_not_mask_that_of_the_effect(side: str, context: Any, records: Any) -> None:
    def run() -> Any:
        records.client.delete_table(TableName="records")
        raise TimeoutError

    with pytest.raises(IdempotencyPersistenceLayerError if side == "stock" else TimeoutError):
        plays(side, run, context)()


@both
def test_the_kill_switch_of_stock_powertools(side: str, context: Any, environment: Any) -> None:
    environment.setenv("POWERTOOLS_IDEMPOTENCY_DISABLED", "true")
    runs: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = plays(side, lambda: runs.append(1) or "x", context)
        call()
        call()
    Shown(side, runs).must_be(stock=[1, 1], ours=[1])


@both
def test_an_async_effect_works_or_is_refused_at_import(side: str, context: Any, records: Any) -> None:
    runs: list[int] = []

    async def late(order: Order, key: IdempotencyKey) -> str:
        runs.append(1)
        return "x"

    if side == "stock":
        coroutines: list[Any] = []

        def run() -> Any:
            coroutines.append(late(Order("o-1"), IdempotencyKey(NAME, ("o-1",))))
            return coroutines[-1]

        with pytest.raises((IdempotencyPersistenceLayerError, TypeError)):
            plays(side, run, context)()
        coroutines[0].close()
        assert records.only()["status"]["S"] == "INPROGRESS"
    else:
        with pytest.raises(DeclarationError, match="async"):
            Operation(NAME, key=business_key("orderId"), result=str).effect(late)  # type: ignore[arg-type]
    assert runs == []


@both
def test_every_outcome_is_visible(side: str, context: Any, records: Any, output: Any) -> None:
    crash(side, context)
    with pytest.raises(IN_PROGRESS):
        plays(side, lambda: "x", context)()
    records.end_lease()
    for _ in range(2):
        plays(side, lambda: "x", context)()
    with pytest.raises(TimeoutError):
        plays(side, raising(TimeoutError()), context)("o-2")
    Shown(side, output().outcomes).must_be(
        stock=[], ours=["in-progress", "taken-over", "executed", "replayed", "released"]
    )


class Clock:
    """`time.time` and the naive clock that stock uses, a chosen number of seconds off."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._real = time.time
        self._now = datetime.datetime.now

    @contextlib.contextmanager
    def off_by(self, seconds: float) -> Iterator[None]:
        with self._environment.context() as changed:
            changed.setattr(time, "time", lambda: self._real() + seconds)
            module = types.SimpleNamespace(**vars(datetime))
            module.datetime = type(
                "Off",
                (datetime.datetime,),
                {"now": classmethod(lambda _c, tz=None: self._now(tz) + self._delta(seconds))},
            )
            for name in ("base", "persistence.base", "persistence.dynamodb", "persistence.datarecord"):
                changed.setattr(f"aws_lambda_powertools.utilities.idempotency.{name}.dt", module, raising=False)
                changed.setattr(f"aws_lambda_powertools.utilities.idempotency.{name}.datetime", module, raising=False)
            yield

    @staticmethod
    def _delta(seconds: float) -> datetime.timedelta:
        return datetime.timedelta(seconds=seconds)


@both
@pytest.mark.parametrize(("claimer", "taker"), [(0, 5), (-5, 0), (5, 0), (0, -5)])
def test_clocks_5_seconds_apart_do_not_let_a_second_copy_in(
    side: str, context: Any, environment: Any, claimer: float, taker: float
) -> None:
    """The second copy comes 2 s before the deadline of the first attempt."""
    clock, context.remaining_ms = Clock(environment), 10_000
    runs: list[str] = []

    def first() -> str:
        runs.append("first")
        with clock.off_by(taker + 8), contextlib.suppress(*IN_PROGRESS):
            plays(side, lambda: runs.append("second") or "x", context)()
        return "x"

    with clock.off_by(claimer), contextlib.suppress(FenceLostError):
        plays(side, first, context)()
    apart = taker - claimer
    Shown(side, runs).must_be(stock=["first", "second"] if apart > 1 else ["first"], ours=["first"])


@both
def test_the_hour_that_comes_twice_does_not_shorten_the_claim(
    side: str, context: Any, records: Any, environment: Any
) -> None:
    """01:55 EDT on 1 November 2026, five minutes before the clocks go back; the claim lasts 15 minutes."""
    environment.setenv("TZ", "America/New_York")
    time.tzset()
    context.remaining_ms = 900_000
    lasts: list[int] = []
    now = datetime.datetime(2026, 11, 1, 6, 10, tzinfo=datetime.UTC).timestamp()  # 01:10 EST, the second one
    clock = Clock(environment)

    def run() -> str:
        lasts.append(round((int(records.only()["in_progress_expiration"]["N"]) / 1000 - now) / 60))
        return "x"

    try:
        with clock.off_by(now - time.time()):
            plays(side, run, context)()
    finally:
        environment.undo()
        time.tzset()
    Shown(side, lasts).must_be(stock=[-45], ours=[15])
