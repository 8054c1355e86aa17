"""How small the shared code is, and that each optional ability can be deleted."""

import ast
import io
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "functions" / "shared"
CORE = ("key.py", "records.py", "operation.py")
# What it is now. Lower these when the code gets smaller.
CORE_LINES = 413
FOLDER_LINES = 1439

# What a copier can delete.
OPTIONAL = (
    "large_results.py",
    "commit.py",
    "warm_cache.py",
    "fail_open.py",
    "http_provider.py",
    "concurrent_batch.py",
    "resolve.py",
    "key_strategies.py",
)
CORE_TESTS = ("test_operation.py", "test_fence.py", "test_key.py")


def code_lines(path: Path) -> int:
    """Count the physical lines that hold code: no blanks, comments and docstrings."""
    text = path.read_text()
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def test_lines_are_counted_as_said(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(
        '"""Doc.\n\nMore."""\n\n# comment\nx = (\n    1,\n\n    2,\n)\n\n\ndef f():\n    """Doc."""\n    return "a"\n'
    )
    assert code_lines(path) == 6


def test_the_core_does_not_grow() -> None:
    assert sum(code_lines(SHARED / name) for name in CORE) <= CORE_LINES


def test_the_folder_does_not_grow() -> None:
    """With every optional ability; a copier who deletes them all copies about 1,100 lines."""
    assert sum(code_lines(path) for path in SHARED.glob("*.py")) <= FOLDER_LINES


@pytest.mark.slow
@pytest.mark.parametrize("deleted", OPTIONAL)
def test_an_optional_ability_can_be_deleted(tmp_path: Path, deleted: str) -> None:
    """The core's tests pass in a copy without the module, in an interpreter that never saw it."""
    ignored = shutil.ignore_patterns("__pycache__", deleted)
    shutil.copytree(SHARED, tmp_path / "functions" / "shared", ignore=ignored)
    tests = tmp_path / "tests" / "functions"
    (tests / "shared").mkdir(parents=True)
    shutil.copy(SHARED.parents[1] / "tests" / "functions" / "conftest.py", tests)
    for name in CORE_TESTS:
        shutil.copy(Path(__file__).parent / name, tests / "shared")
    shutil.copytree(SHARED.parent / "charge_order", tmp_path / "functions" / "charge_order")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = functions\n")
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider"]
    command += ["-W", "error", "-c", "pytest.ini", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    script = "import charge_order.handler, shared.events, shared.stream, shared.queue"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path / "functions", check=True)
