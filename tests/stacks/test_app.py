"""The app as a program: it needs no credentials, git, home or network, and says what is wrong in one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from aws_cdk import App

import app
from stacks.settings import Settings
from tests.stacks.synthesis import PRODUCTION, new_app

ROOT = Path(app.__file__).resolve().parent


def run(tmp_path: Path, **context: str) -> subprocess.CompletedProcess[str]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    everything = {
        **json.loads((ROOT / "cdk.json").read_text())["context"],
        "aws:cdk:bundling-stacks": [],
        **context,
    }
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        cwd=tmp_path,
        env={
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin",
            "CDK_OUTDIR": str(tmp_path / "out"),
            "CDK_CONTEXT_JSON": json.dumps(everything),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_synthesizes_with_an_empty_home(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert not re.search("warning|error", done.stderr, re.IGNORECASE), done.stderr
    templates = {path.name.partition(".")[0] for path in (tmp_path / "out").glob("*.template.json")}
    assert not [path for path in (tmp_path / "out").glob("*.template.json") if "CDK::Metadata" in path.read_text()]
    assert templates == {"Idempotency", "SandboxProvider", "Queue", "Events", "Stream"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("context", "message"),
    [
        (
            {"stage": "prod"},
            "app.py: stage is 'prod' and must be one of sandbox, production: set -c stage=...",
        ),
        (
            {"events_function_timeout": "175"},
            "app.py: the lease (function timeout + lease margin) is 180 s and must be below the start of the "
            "last retry, which is 180 s: every retry would find the record still in progress; lower the "
            "timeout or the margin",
        ),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path: Path, context: dict[str, str], message: str) -> None:
    done = run(tmp_path, **context)
    assert (done.returncode, done.stderr.strip()) == (1, message)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (Settings(), ["idempotency", "sandbox-provider", "queue", "events", "stream"]),
        (PRODUCTION, ["idempotency", "queue", "events", "stream"]),
    ],
    ids=["sandbox", "production"],
)
def test_stack_names_and_tags_say_the_stage(settings: Settings, wanted: list[str]) -> None:
    stacks = app.build(new_app(), settings)
    assert [stack.stack_name for stack in stacks] == [f"retry-safe-{settings.stage}-{name}" for name in wanted]
    for stack in stacks:
        assert stack.tags.tag_values() == {"project": "retry-safe-lambda", "stage": settings.stage}


def test_account_and_region_are_optional() -> None:
    (stack, *_) = app.build(new_app(), Settings(account="111122223333", region="eu-central-1"))
    assert (stack.account, stack.region) == ("111122223333", "eu-central-1")


def test_templates_carry_no_usage_report(tmp_path: Path) -> None:
    assert json.loads((ROOT / "cdk.json").read_text())["versionReporting"] is False
    assembly = App.of(app.build(new_app(), Settings())[0]).synth()  # type: ignore[union-attr]
    for stack in assembly.stacks:
        assert "AWS::CDK::Metadata" not in json.dumps(stack.template)
