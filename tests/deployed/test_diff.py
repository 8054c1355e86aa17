"""What is deployed is what was synthesized: nothing was left out or changed on the way."""

from __future__ import annotations

import pytest

from tests.deployed.cdk_cli import Cdk


@pytest.mark.usefixtures("deployment")
def test_diff_right_after_deploy_is_empty(cdk: Cdk) -> None:
    cdk.diff()
