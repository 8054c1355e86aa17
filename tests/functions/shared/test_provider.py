"""The provider protocol: how the bound one is found, and the adapter for HTTPS against a fake of the wire."""

import json
import sys
import types
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError, ReadTimeoutError

from shared.errors import SettingError
from shared.http_provider import HttpProvider, connect
from shared.invocation import invocation
from shared.provider import (
    ProviderDeclinedError,
    ProviderRefusedError,
    ProviderUnavailableError,
    bound_provider,
)
from shared.settings import provider_settings

URL = "https://pay.example.com/v1/charges"

NO_POOL: Any = None


class TestBinding:
    def test_the_factory_gets_the_settings_and_the_key_passes(self, provider: Any) -> None:
        assert bound_provider().request({"amount": "1"}, reference="o-1", idempotency_key="k") == "effect-1"
        assert provider.keys == ["k"]
        assert bound_provider() is bound_provider()

    def test_a_keyless_provider_never_gets_a_key(self, provider: Any, environment: Any) -> None:
        environment.setenv("PROVIDER_KEY_LIFETIME_SECONDS", "0")
        bound_provider().request({}, reference="o-1", idempotency_key="k")
        assert provider.keys == [None]

    @pytest.mark.parametrize("value", ["recording_provider", ":connect", "recording_provider:", "a:b c"])
    def test_a_malformed_name_is_refused(self, environment: Any, value: str) -> None:
        environment.setenv("PROVIDER", value)
        with pytest.raises(SettingError, match=f"^PROVIDER is '{value}'; wanted 'module:factory'"):
            bound_provider()

    @pytest.mark.parametrize("value", ["no_such_module:connect", "recording_provider:no_such_factory"])
    def test_what_cannot_be_imported_is_refused(self, provider: Any, environment: Any, value: str) -> None:
        environment.setenv("PROVIDER", value)
        with pytest.raises(SettingError, match="cannot be imported; wanted a factory in the function's asset"):
            bound_provider()

    @pytest.mark.parametrize("answer", [{}, {"id": 7}, {"id": ""}, []])
    def test_an_answer_without_an_id_is_no_answer(self, environment: Any, answer: Any) -> None:
        module = types.ModuleType("odd_provider")
        fake = types.SimpleNamespace(request=lambda _payload, **_named: answer)
        module.connect = lambda _settings: fake  # type: ignore[attr-defined]
        environment.setitem(sys.modules, "odd_provider", module)
        environment.setenv("PROVIDER", "odd_provider:connect")
        with pytest.raises(ProviderUnavailableError, match="the provider's answer has an id of type"):
            bound_provider().request({}, reference="o-1", idempotency_key="k")


class Wire:
    """Stands for the connection: records each request that would be sent and answers from a list."""

    def __init__(self, environment: pytest.MonkeyPatch, *answers: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self._answers = list(answers)
        wire = self

        def make_request(pool: Any, conn: Any, method: str, url: str, **named: Any) -> Any:
            wire.sent.append({"host": pool.host, "method": method, "url": url, **named})
            answer = wire._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            status, data = answer
            return urllib3.HTTPResponse(body=data, status=status, preload_content=True)

        environment.setattr(urllib3.connectionpool.HTTPSConnectionPool, "_make_request", make_request)
        environment.setattr("time.sleep", lambda _seconds: None)


def http_provider(environment: Any) -> HttpProvider:
    environment.setenv("PROVIDER_TARGET", URL)
    return connect(provider_settings())


def ask(provider: HttpProvider, key: str | None = "charge/v1#abc") -> Any:
    return provider.request({"amount": "10.00"}, reference="o-1", idempotency_key=key)


class TestHttp:
    def test_the_request_carries_key_body_and_timeouts(self, environment: Any) -> None:
        wire = Wire(environment, (201, b'{"id": "ch_1", "more": 1}'))
        assert ask(http_provider(environment)) == {"id": "ch_1", "more": 1}
        (sent,) = wire.sent
        assert (sent["host"], sent["method"], sent["url"]) == ("pay.example.com", "POST", "/v1/charges")
        assert sent["headers"]["Idempotency-Key"] == '"charge/v1#abc"'
        assert sent["headers"]["Content-Type"] == "application/json"
        assert json.loads(sent["body"]) == {"amount": "10.00", "reference": "o-1"}
        assert (sent["timeout"].connect_timeout, sent["timeout"].read_timeout) == (1, 2.0)

    @pytest.mark.parametrize(("key", "tries"), [("k", 3), (None, 1)])
    @pytest.mark.parametrize("remaining_ms", [10_000, 9_500, 3_000, 300])
    def test_all_tries_end_before_the_deadline(
        self, environment: Any, context: Any, key: str | None, tries: int, remaining_ms: int
    ) -> None:
        context.remaining_ms = remaining_ms
        wire = Wire(environment, (200, b'{"id": "ch_1"}'))
        with invocation(context):
            ask(http_provider(environment), key)
        timeout = wire.sent[0]["timeout"]
        assert tries * (timeout.connect_timeout + timeout.read_timeout) <= remaining_ms / 1000 - 0.2
        if remaining_ms >= 9_500:
            assert (timeout.connect_timeout, timeout.read_timeout) == (1, 2.0), "as set while there is room"

    def test_a_keyed_request_is_sent_again_with_the_same_key(self, environment: Any) -> None:
        wire = Wire(
            environment,
            ReadTimeoutError(None, URL, "late"),  # type: ignore[arg-type]
            ProtocolError("cut"),
            (200, b'{"id": "ch_1"}'),
        )
        assert ask(http_provider(environment)) == {"id": "ch_1"}
        assert {sent["headers"]["Idempotency-Key"] for sent in wire.sent} == {'"charge/v1#abc"'}
        assert len(wire.sent) == 3

    def test_a_keyed_request_is_sent_three_times_at_most(self, environment: Any) -> None:
        wire = Wire(environment, *[ProtocolError("cut")] * 9)
        with pytest.raises(ProviderUnavailableError, match=r"did not answer \(MaxRetryError\)") as caught:
            ask(http_provider(environment))
        assert len(wire.sent) == 3
        assert caught.value.__cause__ is None

    @pytest.mark.parametrize(
        "error", [ReadTimeoutError(NO_POOL, URL, "late"), ProtocolError("cut"), NewConnectionError(NO_POOL, "no")]
    )
    def test_a_keyless_request_is_sent_once(self, environment: Any, error: Exception) -> None:
        wire = Wire(environment, error, error)
        with pytest.raises(ProviderUnavailableError, match=f"did not answer \\({type(error).__name__}\\)"):
            ask(http_provider(environment), key=None)
        (sent,) = wire.sent
        assert "Idempotency-Key" not in sent["headers"]

    @pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 101])
    def test_a_temporary_refusal_is_unavailable_and_not_sent_again(self, environment: Any, status: int) -> None:
        wire = Wire(environment, (status, b"{}"))
        with pytest.raises(ProviderUnavailableError, match=f"answered HTTP {status}; wanted 2xx: ask again later"):
            ask(http_provider(environment))
        assert len(wire.sent) == 1

    def test_a_decline_is_permanent(self, environment: Any) -> None:
        Wire(environment, (402, b'{"error": "card of ada@example.com declined"}'))
        with pytest.raises(ProviderDeclinedError, match=r"^the provider declined \(HTTP 402\)") as caught:
            ask(http_provider(environment))
        assert "ada@" not in str(caught.value)

    @pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 422])
    def test_any_other_refusal_needs_a_person(self, environment: Any, status: int) -> None:
        wire = Wire(environment, (status, b"{}"))
        with pytest.raises(ProviderRefusedError, match=rf"refused the request \(HTTP {status}\); wanted 2xx"):
            ask(http_provider(environment))
        assert len(wire.sent) == 1

    @pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b'{"a": NaN}', b"\xff"])
    def test_an_answer_that_is_no_json_object_is_no_answer(self, environment: Any, data: bytes) -> None:
        Wire(environment, (200, data))
        with pytest.raises(ProviderUnavailableError, match="answered HTTP 200 without a JSON object"):
            ask(http_provider(environment))

    @pytest.mark.parametrize("target", ["http://pay.example.com", "pay.example.com"])
    def test_only_https_is_taken(self, environment: Any, target: str) -> None:
        environment.setenv("PROVIDER_TARGET", target)
        with pytest.raises(SettingError, match=f"^PROVIDER_TARGET is '{target}'; wanted a URL that starts with https"):
            connect(provider_settings())

    def test_the_pool_can_be_another(self) -> None:
        class Down:
            def request(self, *_: Any, **__: Any) -> Any:
                raise MaxRetryError(None, URL)  # type: ignore[arg-type]

        with pytest.raises(ProviderUnavailableError):
            ask(HttpProvider(URL, 2, pool=Down()))
