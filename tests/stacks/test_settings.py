"""Settings: defaults, what context may hold, and every refusal by name."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.settings import Settings, SettingsError, from_context

URLS = {"payments_url": "https://pay.example.com", "mails_url": "https://mail.example.com"}


def test_nothing_chosen_is_the_sandbox() -> None:
    assert from_context({}) == Settings(stage="sandbox")
    assert not Settings().keep_data


def test_texts_of_the_command_line_become_typed() -> None:
    settings = from_context({"stage": "production", "queue_function_timeout": "3", "region": " eu-central-1 ", **URLS})
    assert (settings.queue_function_timeout, settings.region) == (3, "eu-central-1")
    assert settings.keep_data


def test_keys_of_cdk_are_passed_over() -> None:
    context = {"@aws-cdk/core:explicitStackTags": True, "aws:cdk:bundling-stacks": [], "cdk/x": 1}
    assert from_context(context) == Settings()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"stgae": "sandbox"}, "'stgae' is no setting, did you mean 'stage'? The settings are: stage, account"),
    ({"zzz": "1"}, "'zzz' is no setting"),
    ({"stage": "test"}, "stage is 'test' and must be one of sandbox, production"),
    ({"stage": 1}, "stage is 1 and must be a text"),
    ({"region": " "}, "region is ' ' and must be a text that is not blank"),
    ({"queue_function_timeout": "3s"}, "queue_function_timeout is '3s' and must be a whole number"),
    ({"queue_function_timeout": "-3"}, "queue_function_timeout is '-3' and must be a whole number"),
    ({"queue_function_timeout": 2.5}, "queue_function_timeout is 2.5 and must be a whole number"),
    ({"queue_batch_size": True}, "queue_batch_size is True and must be a whole number"),
    ({"queue_batch_size": "10001"}, "queue_batch_size is 10001 and must be from 1 to 10000"),
    ({"queue_batch_size": 11, "queue_batch_window": 0}, "queue_batch_size is 11 and queue_batch_window is 0"),
    ({"queue_max_concurrency": 1}, "queue_max_concurrency is 1 and must be from 2 to 1000"),
    ({"stream_batch_size": 0}, "stream_batch_size is 0"),
    ({"memory_size": 127}, "memory_size is 127 and must be from 128"),
    ({"stage": "production"}, "payments_url is missing: stage production calls a real provider"),
    ({"stage": "production", "payments_url": "https://a.example"}, "mails_url is missing"),
    (
        {"stage": "production", **URLS, "mails_url": "http://a.example"},
        "mails_url is 'http://a.example' and must start",
    ),
    (
        {"payments_url": "https://a.example"},
        "payments_url is 'https://a.example' but stage sandbox uses the stand-in",
    ),
]


@pytest.mark.parametrize(("context", "message"), REFUSED)
def test_refused_by_name(context: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        from_context(context)
    assert message in str(refused.value)
