"""The lab installs from its folder and works where this repository is not on the path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.retrylab.sample_app import SampleApp, queue_resources

ROOT = Path(__file__).parents[2]
STORY = """
from retrylab import Effect, Expect, scenario

CHARGES = Effect("charge", "Charges", lambda item: str(item["reference"]))


@scenario(source="queue", injected="nothing", effect=CHARGES, expect=Expect(effects={"o-1": 1}))
def all_well(lab):
    lab.queue("Orders").send({"order": "o-1"}, "o-1")
"""


@pytest.mark.slow
def test_the_lab_works_without_this_repository(sample: SampleApp, tmp_path: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv is not None, "uv is missing; `make setup` installs it"
    sample.assembly(queue_resources(), "def handler(event, context): charge(seen(event['Records'][0]))")
    (tmp_path / "stories").mkdir()
    (tmp_path / "stories" / "story.py").write_text(STORY)
    python = tmp_path / "venv" / "bin" / "python"
    source = shutil.copytree(ROOT / "retrylab", tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__"))
    quiet = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "venv")],
        [uv, "pip", "install", "--quiet", "--python", str(python), str(source)],
    ):
        subprocess.run(command, check=True, cwd=tmp_path, env=quiet, timeout=300)
    done = subprocess.run(
        [python, "-m", "retrylab", "run", "stories", "--assembly", "."],
        cwd=tmp_path, env=quiet, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 as expected, 0 not." in done.stdout
