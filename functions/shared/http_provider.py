"""A provider behind HTTPS that takes the `Idempotency-Key` header (fact 7, Idempotency-Key row)."""

import json
from collections.abc import Mapping
from typing import Any

import urllib3

from shared.aws import ATTEMPTS, CONNECTIONS, connect_timeout_seconds
from shared.body import parse_json_object
from shared.codec import JsonObject, JsonValue
from shared.errors import SettingError, ShapeError
from shared.invocation import seconds_left
from shared.provider import ProviderDeclinedError, ProviderRefusedError, ProviderUnavailableError
from shared.settings import ProviderSettings

# 409: the first request with this key still runs; 408, 425, 429: come back later.
_TEMPORARY = (408, 409, 425, 429)
_DECLINED = 402
# Only a keyed request is sent again after a lost connection: its key makes the repeat harmless.
_KEYED_RETRIES = urllib3.Retry(
    total=2, connect=2, read=2, redirect=0, status=0, other=0, allowed_methods=None, backoff_factor=0.05
)


class HttpProvider:
    """Posts JSON to one URL; the key travels as a quoted structured-field string."""

    def __init__(self, url: str, call_timeout_seconds: float, pool: Any = None) -> None:
        self._url = url
        self._call_timeout = call_timeout_seconds
        self._pool = pool or urllib3.PoolManager(maxsize=CONNECTIONS)

    def request(self, payload: Mapping[str, JsonValue], *, reference: str, idempotency_key: str | None) -> JsonObject:
        """See `Provider.request`. 402 declines, other 4xx refuse, the rest without a 2xx is unavailable."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = f'"{idempotency_key}"'
        try:
            response = self._pool.request(
                "POST",
                self._url,
                body=json.dumps({**payload, "reference": reference}, allow_nan=False).encode(),
                headers=headers,
                timeout=self._timeout(1 if idempotency_key is None else ATTEMPTS),
                retries=_KEYED_RETRIES if idempotency_key is not None else False,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            # The library's message can hold the URL and, with it, business data: only its type goes on.
            raise ProviderUnavailableError(
                f"the provider did not answer ({type(error).__name__}); wanted an answer within the call timeout"
            ) from None
        return _answer(response.status, response.data or b"")

    def _timeout(self, tries: int) -> urllib3.Timeout:
        """All tries end before the deadline: near it, each gets its share of what is left."""
        each = max(0.01, seconds_left() / tries)
        connect = min(connect_timeout_seconds(self._call_timeout), each / 2)
        return urllib3.Timeout(connect=connect, read=min(self._call_timeout, each - connect))


def connect(settings: ProviderSettings) -> HttpProvider:
    """Factory for PROVIDER=`shared.http_provider:connect`, target an https URL. Raises SettingError."""
    if not settings.target.startswith("https://"):
        raise SettingError(f"PROVIDER_TARGET is {settings.target!r}; wanted a URL that starts with https://")
    return HttpProvider(settings.target, settings.call_timeout_seconds)


def _answer(status: int, data: bytes) -> JsonObject:
    if status == _DECLINED:
        raise ProviderDeclinedError("the provider declined (HTTP 402); the same request is declined again")
    if status in _TEMPORARY or not 200 <= status < 500:
        raise ProviderUnavailableError(f"the provider answered HTTP {status}; wanted 2xx: ask again later")
    if status >= 300:
        raise ProviderRefusedError(f"the provider refused the request (HTTP {status}); wanted 2xx: correct the request")
    try:
        return parse_json_object(data.decode(), "the provider's answer")
    except (ShapeError, UnicodeDecodeError):
        raise ProviderUnavailableError(
            f"the provider answered HTTP {status} without a JSON object; wanted one: ask again"
        ) from None
