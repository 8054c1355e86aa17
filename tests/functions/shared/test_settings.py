"""The environment variables: each is required, typed and named when it is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from shared import settings
from shared.aws import dynamodb
from shared.errors import SettingError

READERS: dict[str, Callable[[], Any]] = {
    "IDEMPOTENCY_TABLE": settings.claim_settings,
    "LEASE_MARGIN_SECONDS": settings.claim_settings,
    "RECORD_LIFETIME_SECONDS": settings.claim_settings,
    "PROVIDER": settings.provider_settings,
    "PROVIDER_TARGET": settings.provider_settings,
    "PROVIDER_KEY_LIFETIME_SECONDS": settings.provider_settings,
    "CALL_TIMEOUT_SECONDS": settings.provider_settings,
    "SEARCH_VIEW_TABLE": settings.index_settings,
    "TOMBSTONE_LIFETIME_SECONDS": settings.index_settings,
}


def test_all_are_read() -> None:
    assert settings.claim_settings() == settings.ClaimSettings("records", 5, 864_000)
    assert settings.provider_settings() == settings.ProviderSettings(
        "recording_provider:connect", "memory", 2_592_000, 2.0
    )
    assert settings.index_settings() == settings.IndexSettings("search-view", 864_000, None)


def test_the_ttl_attribute_is_optional(environment: Any) -> None:
    environment.setenv("ORDERS_TTL_ATTRIBUTE", "endsAt")
    assert settings.index_settings().orders_ttl_attribute == "endsAt"


@pytest.mark.parametrize("name", READERS)
def test_a_missing_one_is_named(environment: Any, name: str) -> None:
    environment.delenv(name)
    with pytest.raises(SettingError, match=f"^{name} is not set; wanted a value: set it in the function's env"):
        READERS[name]()


@pytest.mark.parametrize("name", [*READERS, "ORDERS_TTL_ATTRIBUTE"])
@pytest.mark.parametrize("value", ["", " ", "x "])
def test_blank_or_padded_text_is_refused(environment: Any, name: str, value: str) -> None:
    environment.setenv(name, value)
    with pytest.raises(SettingError, match=f"^{name} is '{value}'; wanted text without blanks around it"):
        READERS.get(name, settings.index_settings)()


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("LEASE_MARGIN_SECONDS", "-1", "whole seconds of at least 0"),
        ("LEASE_MARGIN_SECONDS", "5.0", "whole seconds of at least 0"),
        ("RECORD_LIFETIME_SECONDS", "0", "whole seconds of at least 1"),
        ("RECORD_LIFETIME_SECONDS", "\u0665", "whole seconds of at least 1"),
        ("PROVIDER_KEY_LIFETIME_SECONDS", "never", "whole seconds of at least 0"),
        ("TOMBSTONE_LIFETIME_SECONDS", "0", "whole seconds of at least 1"),
        ("CALL_TIMEOUT_SECONDS", "0", "seconds above 0 and at most 900"),
        ("CALL_TIMEOUT_SECONDS", "nan", "seconds above 0 and at most 900"),
        ("CALL_TIMEOUT_SECONDS", "soon", "seconds above 0 and at most 900"),
        ("CALL_TIMEOUT_SECONDS", "901", "seconds above 0 and at most 900"),
    ],
)
def test_a_wrong_number_is_named_with_what_is_wanted(environment: Any, name: str, value: str, wanted: str) -> None:
    environment.setenv(name, value)
    with pytest.raises(SettingError, match=f"^{name} is '{value}'; wanted {wanted}"):
        READERS[name]()


def test_a_fraction_of_a_second_is_a_call_timeout(environment: Any) -> None:
    environment.setenv("CALL_TIMEOUT_SECONDS", "0.5")
    assert settings.call_timeout_seconds() == 0.5


def test_in_a_short_function_the_wait_for_a_connection_is_no_longer_than_for_an_answer(environment: Any) -> None:
    environment.setenv("CALL_TIMEOUT_SECONDS", "0.4")
    dynamodb.forget()
    config = dynamodb().meta.config
    assert (config.connect_timeout, config.read_timeout) == (0.4, 0.4)


def test_clients_have_explicit_retries_and_timeouts(environment: Any) -> None:
    config = dynamodb().meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}
    assert (config.connect_timeout, config.read_timeout) == (1, 2.0)
    assert dynamodb() is dynamodb()
    assert dynamodb(1).meta.config.retries == {"mode": "standard", "total_max_attempts": 1}
