"""Deploys the app once for all tests of this folder.

`make deploy-local` names the place to deploy to, RETRY_SAFE_DEPLOYED=local, and then a local AWS that is not
installed is an error. Without that variable the tests use one that is installed, and else are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.deployed.cdk_cli import SHORT_TIMES, Cdk
from tests.deployed.deployment import Deployment, connected
from tests.deployed.local_aws import ACCOUNT, HOST, PROGRAM, REGION, ROOT, LocalAws, local_aws

HERE = Path(__file__).parent
TARGET = "RETRY_SAFE_DEPLOYED"
RUNNING = pytest.StashKey[LocalAws]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here is `deployed`, and may open connections to this machine and no other."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.deployed)
            item.add_marker(pytest.mark.allow_hosts([HOST]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the log, which holds the functions' log lines, beside what failed."""
    report = yield
    aws = item.config.stash.get(RUNNING, None)
    if report.failed and aws is not None:
        report.sections.append((f"end of {aws.log}", aws.last_lines()))
    return report


@pytest.fixture(scope="session")
def aws(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    """A local AWS of this test run's own."""
    target = os.environ.get(TARGET)
    if target not in (None, "local"):
        pytest.fail(f"{TARGET} is {target!r}; wanted 'local', or no such variable", pytrace=False)
    if not PROGRAM.exists():
        missing = f"no local AWS is installed in {PROGRAM.relative_to(ROOT).parts[0]}: run `make deploy-local`"
        if target is None:
            pytest.skip(missing)
        pytest.fail(missing, pytrace=False)
    with local_aws(tmp_path_factory.mktemp("local-aws")) as running:
        pytestconfig.stash[RUNNING] = running
        yield running


@pytest.fixture(scope="session")
def cdk(aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Cdk:
    """The CDK CLI, pointed at the local AWS."""
    return Cdk(tmp_path_factory.mktemp("cdk"), aws.environment)


@pytest.fixture(scope="session")
def deployment(aws: LocalAws, cdk: Cdk) -> Iterator[Deployment]:
    """The app, deployed by the CDK CLI with short timeouts."""
    cdk.synth(SHORT_TIMES)
    cdk.bootstrap(ACCOUNT, REGION)
    with connected(cdk.deploy(), aws.environment) as deployed:
        yield deployed
