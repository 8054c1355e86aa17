"""Fixtures of the lab's own tests."""

from pathlib import Path

import pytest

from tests.retrylab.sample_app import SampleApp


@pytest.fixture
def sample(tmp_path: Path) -> SampleApp:
    return SampleApp(tmp_path)
