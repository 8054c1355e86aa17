"""cfn-lint finds nothing in any template; cdk-nag finds nothing that is not explained here."""

from __future__ import annotations

import json
from pathlib import Path

import cfnlint.api
import pytest
from aws_cdk import App, Validations
from aws_cdk import aws_kms as kms
from cdk_nag import AwsSolutionsChecks
from cfnlint.config import ManualArgs

import app
from stacks.settings import Settings
from tests.stacks.synthesis import PRODUCTION, Stacks, build_with, new_app

REGIONS = ["us-east-1", "eu-central-1"]

RUNTIME = "3.13 is the newest runtime the pinned libraries are tested on; one runtime for all functions"
NO_REDRIVE = "a failure path's end: EventBridge or Lambda writes here, no consumer receives, a person redrives"
NO_ACCESS_LOG = "one writer (Lambda) and a person; an access log bucket would cost more than it tells"

EXPLAINED: dict[tuple[str, str], str] = {
    ("AwsSolutions-L1", "Queue/ChargeOrder/Function/Resource"): RUNTIME,
    ("AwsSolutions-L1", "Events/SendReceipt/Function/Resource"): RUNTIME,
    ("AwsSolutions-L1", "Stream/IndexOrder/Function/Resource"): RUNTIME,
    ("AwsSolutions-SQS3", "Events/UndeliveredEvents/Resource"): NO_REDRIVE,
    ("AwsSolutions-SQS3", "Events/FailedReceipts/Resource"): NO_REDRIVE,
    ("AwsSolutions-S1", "Stream/FailedRecords/Resource"): NO_ACCESS_LOG,
    (
        "AwsSolutions-IAM5[Resource::<OrdersA9B65338.Arn>/stream/*]",
        "Stream/IndexOrder/Role/DefaultPolicy/Resource",
    ): "listing streams has no finer resource than the streams of one table",
    (
        "AwsSolutions-IAM5[Resource::<FailedRecordsDEC8AD7E.Arn>/aws/lambda/*]",
        "Stream/IndexOrder/Role/DefaultPolicy/Resource",
    ): "Lambda chooses the object's name below this prefix",
}


@pytest.mark.parametrize("variant", ["sandbox", "production", "keyed", "aliased"])
def test_cfn_lint_is_silent(variant: str, request: pytest.FixtureRequest) -> None:
    stacks: Stacks = request.getfixturevalue(variant)
    found = {
        name: [str(match) for match in cfnlint.api.lint(json.dumps(template.json), config=ManualArgs(regions=REGIONS))]
        for name, template in stacks.items()
        if template.resources
    }
    assert found == {name: [] for name in found}


def nag_findings(the_app: App) -> set[tuple[str, str]]:
    """Rule and construct path of every finding of the AwsSolutions pack."""
    Validations.of(the_app).add_plugins(AwsSolutionsChecks(the_app))
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        the_app.synth()
    report = json.loads((Path(the_app.outdir) / "validation-report.json").read_text())
    return {
        (violation["ruleName"], construct["constructPath"])
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    }


@pytest.mark.parametrize("settings", [Settings(), PRODUCTION], ids=["sandbox", "production"])
def test_cdk_nag_finds_only_what_is_explained(settings: Settings) -> None:
    the_app = new_app()
    app.build(the_app, settings)
    assert nag_findings(the_app) == set(EXPLAINED)


def test_cdk_nag_finds_no_more_with_a_customer_key() -> None:
    stacks = build_with(key=lambda stack: kms.Key(stack, "Key", enable_key_rotation=True), alias_name="live")
    the_app = stacks[0].node.root
    assert isinstance(the_app, App)
    assert nag_findings(the_app) - set(EXPLAINED) == set()
