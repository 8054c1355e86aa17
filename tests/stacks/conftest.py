"""Each variant of the stacks, synthesized once a session."""

from __future__ import annotations

import pytest
from aws_cdk import aws_kms as kms

import app
from stacks.settings import Settings
from tests.stacks.synthesis import PRODUCTION, Stacks, build_with, new_app, synthesized


@pytest.fixture(scope="session")
def sandbox() -> Stacks:
    """The app as `cdk deploy --all` makes it."""
    return synthesized(app.build(new_app(), Settings()))


@pytest.fixture(scope="session")
def production() -> Stacks:
    """The app with `-c stage=production`."""
    return synthesized(app.build(new_app(), PRODUCTION))


@pytest.fixture(scope="session")
def keyed() -> Stacks:
    """All stacks with one customer key, which lives in a stack of its own."""
    return synthesized(build_with(key=lambda stack: kms.Key(stack, "Key")))


@pytest.fixture(scope="session")
def aliased() -> Stacks:
    """All stacks with the alias `live`."""
    return synthesized(build_with(alias_name="live"))
