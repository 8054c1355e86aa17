"""The table of requests in docs/performance.md: counted again, and compared with what is written there."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_an_event_costs_what_the_page_says() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "bench.requests"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    counted = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()[1:]]
    page = (ROOT / "docs" / "performance.md").read_text()
    table = [line.strip("| ").split(" | ") for line in page.splitlines() if re.fullmatch(r"\| .* \| \d \|", line)]
    assert len(counted) == len(table) == 11
    assert [[cell.replace("0 (0)", "0") for cell in row] for row in counted] == table
