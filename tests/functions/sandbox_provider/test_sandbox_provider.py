"""The stand-in provider: effects and calls told apart, delays, failures, forgotten keys, keyless requests."""

import time
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from botocore.exceptions import ReadTimeoutError

from sandbox_provider import control
from sandbox_provider.client import SandboxProvider, connect
from shared import aws
from shared.provider import ProviderUnavailableError, bound_provider
from shared.settings import ProviderSettings

TABLE = "payments"
SETTINGS = ProviderSettings("sandbox_provider.client:connect", TABLE, 3600, 2.0)


@pytest.fixture
def client(tables: Any) -> Any:
    tables.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return tables


@pytest.fixture
def slept(environment: Any) -> list[float]:
    seconds: list[float] = []
    environment.setattr(time, "sleep", seconds.append)
    return seconds


def ask(provider: SandboxProvider, key: str | None, reference: str = "o-1") -> Any:
    return provider.request({"amount": "10.00"}, reference=reference, idempotency_key=key)


def counted(client: Any) -> tuple[dict[str, int], dict[str, int]]:
    return control.effects(client, TABLE), control.calls(client, TABLE)


def test_it_is_found_by_the_environment(client: Any, environment: Any) -> None:
    environment.setenv("PROVIDER", "sandbox_provider.client:connect")
    environment.setenv("PROVIDER_TARGET", TABLE)
    first = bound_provider().request({}, reference="o-1", idempotency_key="k")
    assert first.startswith("sandbox-")
    assert bound_provider().request({}, reference="o-1", idempotency_key="k") == first


def test_a_keyed_repeat_gets_the_first_answer_and_has_no_second_effect(client: Any) -> None:
    provider = connect(SETTINGS)
    first = ask(provider, "k1")
    assert [ask(provider, "k1") for _ in range(2)] == [first, first]
    assert ask(provider, "k2", "o-2") != first
    assert counted(client) == ({"o-1": 1, "o-2": 1}, {"o-1": 3, "o-2": 1})
    (item,) = [item for item in client.scan(TableName=TABLE)["Items"] if item["id"]["S"] == "k1"]
    assert item.keys() == {"id", "reference", "answer", "calls", "expiration"}
    assert abs(int(item["expiration"]["N"]) - time.time() - 3600) < 2


def test_keyless_every_call_is_an_effect(client: Any) -> None:
    provider = connect(SETTINGS)
    assert ask(provider, None) != ask(provider, None)
    assert counted(client) == ({"o-1": 2}, {"o-1": 2})


def test_a_chosen_key_fails_without_an_effect_until_it_is_set_back(client: Any) -> None:
    provider = connect(SETTINGS)
    control.set_failing(client, TABLE, "k1", True)
    with pytest.raises(ProviderUnavailableError, match="set to fail for this key, and nothing happened"):
        ask(provider, "k1")
    assert counted(client) == ({}, {})
    ask(provider, "k2")
    control.set_failing(client, TABLE, "k1", False)
    ask(provider, "k1")
    assert counted(client) == ({"o-1": 2}, {"o-1": 2})


def test_a_key_that_fails_after_its_first_effect_keeps_it(client: Any) -> None:
    provider = connect(SETTINGS)
    first = ask(provider, "k1")
    control.set_failing(client, TABLE, "k1", True)
    with pytest.raises(ProviderUnavailableError):
        ask(provider, "k1")
    control.set_failing(client, TABLE, "k1", False)
    assert ask(provider, "k1") == first


def test_a_delay_comes_after_the_effect(client: Any, slept: list[float]) -> None:
    control.set_delay(client, TABLE, "k1", 1.5)
    ask(connect(SETTINGS), "k1")
    ask(connect(SETTINGS), "k2")
    assert slept == [1.5]


def test_a_delay_beyond_the_call_timeout_is_no_answer_to_an_effect(client: Any, slept: list[float]) -> None:
    control.set_delay(client, TABLE, "k1", 60)
    with pytest.raises(ProviderUnavailableError, match=r"answer after 60.0 s for this key; wanted at most 2.0 s"):
        ask(connect(SETTINGS), "k1")
    assert slept == [2.0]
    assert counted(client) == ({"o-1": 1}, {"o-1": 1})


def test_a_key_is_forgotten_after_its_lifetime_though_the_item_is_still_there(client: Any) -> None:
    provider = connect(SETTINGS)
    with time_machine.travel("2026-01-05T10:00:00Z", tick=False) as clock:
        first = ask(provider, "k1")
        clock.shift(timedelta(seconds=3600))
        assert ask(provider, "k1") == first
        clock.shift(timedelta(seconds=1))
        second = ask(provider, "k1")
        assert second != first
        assert ask(provider, "k1") == second
        assert counted(client) == ({"o-1": 2}, {"o-1": 4})


def test_a_key_forgotten_by_two_requests_at_once_has_one_new_effect(client: Any, environment: Any) -> None:
    provider = connect(SETTINGS)
    with time_machine.travel("2026-01-05T10:00:00Z", tick=False) as clock:
        ask(provider, "k1")
        old = client.get_item(TableName=TABLE, Key={"id": {"S": "k1"}})["Item"]
        clock.shift(timedelta(seconds=3601))
        ask(provider, "k1")
        with pytest.raises(ProviderUnavailableError, match="another request with the same forgotten key was first"):
            provider._forgotten("o-1", "{}", "k1", old)
        assert control.effects(client, TABLE) == {"o-1": 2}


def test_a_missing_table_is_an_unavailable_provider(tables: Any) -> None:
    with pytest.raises(ProviderUnavailableError, match="table answered ResourceNotFoundException"):
        ask(connect(SETTINGS), "k1")
    with pytest.raises(ProviderUnavailableError, match="table answered ResourceNotFoundException"):
        ask(connect(SETTINGS), None)


def test_a_lost_connection_is_an_unavailable_provider(client: Any, environment: Any) -> None:
    def cut(**_: Any) -> None:
        raise ReadTimeoutError(endpoint_url="https://dynamodb")

    aws.dynamodb().meta.events.register("before-call.dynamodb.UpdateItem", cut)
    with pytest.raises(ProviderUnavailableError, match=r"did not answer \(ReadTimeoutError\)"):
        ask(connect(SETTINGS), "k1")


def test_a_keyless_request_is_sent_once_and_a_keyed_one_again(client: Any, environment: Any) -> None:
    attempts: list[str] = []

    def lose(request: Any, **_: Any) -> None:
        attempts.append(request.headers["X-Amz-Target"].decode().rpartition(".")[2])
        raise ReadTimeoutError(endpoint_url="https://dynamodb")

    for requests in (aws.dynamodb(), aws.dynamodb(1)):
        requests.meta.events.register_first("before-send.dynamodb.*", lose)
    for key in ("k1", None):
        with pytest.raises(ProviderUnavailableError, match=r"did not answer \(ReadTimeoutError\)"):
            ask(connect(SETTINGS), key)
    assert attempts == ["UpdateItem", "UpdateItem", "UpdateItem", "PutItem"]


def test_a_payload_that_is_no_json_is_refused_as_a_real_api_would(client: Any) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        connect(SETTINGS).request({"at": object()}, reference="o-1", idempotency_key="k")  # type: ignore[dict-item]
