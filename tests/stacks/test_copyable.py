"""Each stack stands alone: its listed files, copied elsewhere, synthesize and test their function there."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.copying import COPY

ROOT = Path(__file__).resolve().parents[2]

HEADER = """
from aws_cdk import App, Stack
from aws_cdk import aws_dynamodb as dynamodb

app = App()
"""

OWN_TABLE = """
from stacks.constructs.provider import http_binding

mine = Stack(app, "Mine")
records = dynamodb.Table(
    mine, "Records",
    partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
    time_to_live_attribute="expiration",
)
provider = http_binding("https://provider.example.com", key_lifetime=30 * 86_400)
"""

APPS = {
    "idempotency": """
from stacks.idempotency_stack import IdempotencyStack
IdempotencyStack(app, "Idempotency")
""",
    "queue": f"""{OWN_TABLE}
from stacks.queue_stack import QueueStack
QueueStack(app, "Queue", records=records, provider=provider)
""",
    "events": f"""{OWN_TABLE}
from stacks.events_stack import EventsStack
EventsStack(app, "Events", records=records, provider=provider)
""",
    "stream": """
from stacks.stream_stack import StreamStack
StreamStack(app, "Stream")
""",
}


def copy(name: str, target: Path) -> None:
    """Copy a stack's listed files, as a person would."""
    for entry in COPY[name]:
        source, destination = ROOT / entry, target / entry
        destination.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, destination, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, destination)


def imported(path: Path) -> set[str]:
    """The files of `stacks` that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {f"{module.replace('.', '/')}.py" for module in modules if module and module.startswith("stacks.")}
    return found


@pytest.mark.parametrize("name", COPY)
def test_the_list_holds_exactly_what_the_stack_imports(name: str) -> None:
    needed, waiting = set(), {f"stacks/{name}_stack.py"}
    while waiting:
        needed |= waiting
        waiting = {other for path in waiting for other in imported(ROOT / path)} - needed
    listed = {entry for entry in COPY[name] if entry.startswith("stacks/") and not entry.endswith("__init__.py")}
    assert listed == needed
    packages = {f"{Path(path).parent.as_posix()}/__init__.py" for path in needed}
    assert packages | {"stacks/__init__.py"} == {entry for entry in COPY[name] if entry.endswith("__init__.py")}


def test_every_stack_that_is_not_a_stand_in_is_listed() -> None:
    stacks = {path.name.removesuffix("_stack.py") for path in (ROOT / "stacks").glob("*_stack.py")}
    assert stacks - {"sandbox_provider"} == set(COPY) == set(APPS)


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds `requirements.txt` and nothing else."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed: it makes the environment the copies run in")
    folder = tmp_path_factory.mktemp("environment")
    made = Path(folder, "bin", "python")
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(folder)],
        ["pip", "install", "--quiet", "--python", str(made), "--requirement", str(ROOT / "requirements.txt")],
    ):
        subprocess.run([uv, *command], check=True, cwd=folder)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", COPY)
def test_the_copy_works_in_an_empty_app(name: str, python: Path, tmp_path: Path) -> None:
    copy(name, tmp_path)
    (tmp_path / "app.py").write_text(f"{HEADER}{APPS[name]}\napp.synth()\n")
    run("app.py", python=python, folder=tmp_path)
    assert (tmp_path / "cdk.out" / f"{name.capitalize()}.template.json").exists()
    if (tmp_path / "functions").exists():
        options = ("-q", "-W", "error", "-p", "no:cacheprovider", "-o", "pythonpath=functions")
        tested = run("-m", "pytest", *options, "--import-mode=importlib", "tests", python=python, folder=tmp_path)
        assert " passed" in tested


def run(*arguments: str, python: Path, folder: Path) -> str:
    """Run the environment's Python in the copy's folder; its output, or a failure that shows it."""
    done = subprocess.run(
        [python, *arguments],
        cwd=folder,
        env={
            "HOME": os.environ.get("HOME", str(folder)),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "CDK_OUTDIR": str(folder / "cdk.out"),
            "CDK_CONTEXT_JSON": '{"aws:cdk:bundling-stacks": []}',
            "PYTHONPYCACHEPREFIX": str(python.parents[1] / "bytecode"),  # compiled once for all copies
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
