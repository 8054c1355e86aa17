"""How the suites share two workers: what is set up once and is costly stays together on one of them."""

from pathlib import Path

import pytest

TOGETHER = ("tests/deployed", "tests/scenarios", "tests/stacks/test_copyable.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = Path(__file__).parents[1]
    for item in items:
        place = item.path.relative_to(root).as_posix()
        for start in TOGETHER:
            if place.startswith(start):
                item.add_marker(pytest.mark.xdist_group(start))
