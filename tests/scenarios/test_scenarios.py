"""The app's scenarios hold on its own templates, and break, with the fault named, when the app is broken."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aws_cdk import App

from app import build
from stacks.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sandbox stage as it would deploy, without its layer: the lab then takes Powertools from this environment."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    out = tmp_path_factory.mktemp("assembly")
    app = App(
        outdir=str(out),
        analytics_reporting=False,
        context={
            **context,
            "aws:cdk:bundling-stacks": [],
            "aws:cdk:enable-path-metadata": True,
            "aws:cdk:enable-asset-metadata": True,
        },
    )
    here = Path.cwd()
    os.chdir(ROOT)
    try:
        build(app, Settings())
        app.synth()
    finally:
        os.chdir(here)
    return out


@pytest.fixture
def broken(assembly: Path, tmp_path: Path) -> Path:
    """A copy of the assembly to break, with the functions' code inside it."""
    copied = Path(shutil.copytree(assembly, tmp_path / "broken"))
    shutil.copytree(ROOT / "functions", copied / "code", ignore=shutil.ignore_patterns("__pycache__"))
    for template in copied.glob("*.template.json"):
        text = template.read_text()
        template.write_text(re.sub(r'"aws:asset:path": "[^"]*/functions"', '"aws:asset:path": "code"', text))
    return copied


def play(assembly: Path, only: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "retrylab", "run", "scenarios", "--assembly", str(assembly), "--only", only],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=300,
    )  # fmt: skip


def change_code(assembly: Path, file: str, old: str, new: str) -> None:
    """Break one line of the functions' code."""
    path = assembly / "code" / file
    code = path.read_text()
    assert code.count(old) == 1, f"{file} holds {old!r} {code.count(old)} times"
    path.write_text(code.replace(old, new))


def change_template(assembly: Path, stack: str, pattern: str, new: str) -> None:
    """Break one property of a template."""
    path = assembly / f"{stack}.template.json"
    text, changes = re.subn(pattern, new, path.read_text())
    assert changes == 1, f"{pattern} matches {changes} times"
    path.write_text(text)


def test_every_scenario_comes_out_as_declared(assembly: Path) -> None:
    done = play(assembly)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 not." in done.stdout


def test_a_handler_without_its_claim_is_caught(broken: Path) -> None:
    claim = '"""Claim: one conditional PutItem."""'
    change_code(broken, "shared/records.py", claim, f"{claim}\n        return")
    done = play(broken, "two concurrent")
    assert done.returncode == 1
    assert (
        "FAIL two concurrent deliveries: o-1: the provider was called 5 times, wanted 1: "
        "Queue/ChargeOrder/Function attempt 1 at 1.3 s (WITHOUT a claim); "
        "Queue/ChargeOrder/Function attempt 2 at 1.3 s (WITHOUT a claim)"
    ) in done.stdout


def test_a_completion_before_the_effect_is_caught(broken: Path) -> None:
    change_code(
        broken,
        "shared/provider.py",
        "answer = self.provider.request(payload, reference=reference, idempotency_key=key)",
        "answer = {'id': 'made up'}",
    )
    done = play(broken, "timeout after the effect")
    assert done.returncode == 1
    assert "o-1: 0 x charge, wanted 1" in done.stdout


def test_a_visibility_timeout_of_30_seconds_is_caught_and_named(broken: Path) -> None:
    change_template(broken, "Queue", r'"VisibilityTimeout": 61', '"VisibilityTimeout": 30')
    done = play(broken, "throttled then slow")
    assert done.returncode == 1
    assert (
        "Queue/Orders: a batch used up a receive at 30.0 s although the function never ran: VisibilityTimeout 30 s is "
        "too short, wanted at least 6 x 10 s function timeout + 1 s batch window = 61 s (fact 3.1.4)"
    ) in done.stdout


@pytest.mark.parametrize(
    ("stack", "pattern", "new", "only", "named"),
    [
        (
            "Queue", r'"FunctionResponseTypes": \[\s*"ReportBatchItemFailures"\s*\]', '"FunctionResponseTypes": []',
            "poison", "poison ended at completed, wanted Queue/OrdersDeadLetters",
        ),
        (
            "Stream", r'"BisectBatchOnFunctionError": true', '"BisectBatchOnFunctionError": false',
            "times out", "o-4@1: 0 x change of the view, wanted 1",
        ),
        (
            "Events", r'"MaximumEventAgeInSeconds": 3600,\s*"MaximumRetryAttempts": 2',
            '"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 2',
            "retries exhausted", "o-1 was delivered 1 times, wanted 3",
        ),
    ],
)  # fmt: skip
def test_a_broken_template_is_caught_and_named(
    broken: Path, stack: str, pattern: str, new: str, only: str, named: str
) -> None:
    change_template(broken, stack, pattern, new)
    done = play(broken, only)
    assert done.returncode == 1
    assert named in done.stdout, done.stdout
