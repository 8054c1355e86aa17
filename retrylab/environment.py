"""Execution environments: the real handler code, imported once per environment with that function's variables.

Each environment has modules of its own for everything in the function's asset, so module-level state is warm in a
warm start and gone in a cold one. Packages of layers and of the lab's own interpreter are shared by the process.
"""

from __future__ import annotations

import atexit
import importlib
import io
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from retrylab.errors import LabError
from retrylab.model import Function

_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHASHSEED")


class Output(io.TextIOWrapper):
    """What handlers print, in place of the process's own output."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding="utf-8", write_through=True)
        self._told = 0

    def getvalue(self) -> str:
        return self._bytes.getvalue().decode(errors="replace")

    def fresh_lines(self) -> list[str]:
        """What was printed since the last call."""
        text = self._bytes.getvalue()[self._told :].decode(errors="replace")
        self._told = len(self._bytes.getvalue())
        return [line for line in text.splitlines() if line]


class Stage:
    """What the process looks like right now: which environment's modules, variables and paths are in place."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._active: ExecutionEnvironment | None = None
        self._hidden: dict[str, ModuleType] = {}

    def start(self) -> None:
        """Note what to put back; after the clocks were taken over, because that changes variables, too."""
        self._outside_variables = dict(os.environ)
        self._outside_path = list(sys.path)
        self._outside_output = sys.stdout, sys.stderr
        self._outside_bytecode = sys.pycache_prefix

    def enter(self, environment: ExecutionEnvironment) -> None:
        """Put `environment` in place. Costs next to nothing when it already is."""
        sys.stdout = sys.stderr = self._output
        if self._active is environment:
            return
        self._take_modules_away()
        # The caller may have imported modules of the same names (a test of the same function does).
        self._hidden = _modules_of(environment.packages)
        for name in self._hidden:
            del sys.modules[name]
        sys.modules.update(environment.modules)
        sys.path[:] = [str(root) for root in environment.roots] + self._outside_path
        # Assets are hashed and deployed: importing them must not leave bytecode in them.
        sys.pycache_prefix = _bytecode_folder()
        _replace_variables(environment.variables)
        self._active = environment

    def pause(self) -> None:
        """Between two steps of a handler: what is printed now is the caller's own."""
        sys.stdout, sys.stderr = self._outside_output

    def leave(self) -> None:
        """Put back what was there before the first `enter`."""
        self._take_modules_away()
        sys.path[:] = self._outside_path
        sys.pycache_prefix = self._outside_bytecode
        sys.stdout, sys.stderr = self._outside_output
        _replace_variables(self._outside_variables)
        self._active = None

    def _take_modules_away(self) -> None:
        if self._active is None:
            return
        self._active.modules = _modules_of(self._active.packages)
        for name in self._active.modules:
            del sys.modules[name]
        sys.modules.update(self._hidden)
        self._hidden = {}


class ExecutionEnvironment:
    """One sandbox of one function. `twin`, when given, is a folder whose code replaces the function's own."""

    def __init__(self, function: Function, serial: int, overrides: dict[str, str], twin: Twin | None) -> None:
        self.function = function
        self.serial = serial
        self.modules: dict[str, ModuleType] = {}
        self.handler: Callable[[Any, Any], Any] | None = None
        twin_roots = [twin.folder] if twin else []
        self._handler_name = twin.handler if twin else function.handler
        layers = [layer / "python" for layer in function.layers if (layer / "python").is_dir()]
        self.roots = [*twin_roots, function.code, *layers]
        self.packages = {name for root in [*twin_roots, function.code] for name in _top_level_names(root)}
        self.variables = self._variables(overrides)

    def __str__(self) -> str:
        return f"{self.function.path}#{self.serial}"

    def load(self) -> None:
        """Import the handler: the init phase. Called inside a strand, with the environment in place."""
        importlib.invalidate_caches()
        module_name, _, attribute = self._handler_name.rpartition(".")
        boto3 = sys.modules.get("boto3")
        if boto3 is not None:
            boto3.DEFAULT_SESSION = None  # type: ignore[attr-defined]  # a new process has no default session yet
        module = importlib.import_module(module_name.replace("/", "."))
        handler = getattr(module, attribute, None)
        if not callable(handler):
            raise LabError(f"{self.function.path}: Handler {self._handler_name} names no function in {module_name}")
        self.handler = handler

    def _variables(self, overrides: dict[str, str]) -> dict[str, str]:
        function = self.function
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        return {
            **kept,
            "AWS_ACCESS_KEY_ID": "lab",
            "AWS_SECRET_ACCESS_KEY": "lab",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": function.region,
            "AWS_REGION": function.region,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory),
            "AWS_LAMBDA_LOG_STREAM_NAME": f"lab/[$LATEST]{self.serial:032x}",
            "LAMBDA_TASK_ROOT": str(function.code),
            "TZ": ":UTC",
            **function.environment,
            **overrides,
        }


class Twin:
    """Code that takes a function's place in a run: `folder` goes first on the path, `handler` is what is called."""

    def __init__(self, folder: Path, handler: str) -> None:
        if not folder.is_dir():
            raise LabError(f"{folder}: no such folder; wanted the code of a twin")
        self.folder = folder
        self.handler = handler


@cache
def _bytecode_folder() -> str:
    """Where imports of handlers keep their bytecode: one folder a process, removed at its end."""
    folder = tempfile.TemporaryDirectory(prefix="retrylab-")
    atexit.register(folder.cleanup)
    return folder.name


def _modules_of(packages: set[str]) -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] in packages}


def _top_level_names(root: Path) -> set[str]:
    if not root.is_dir():
        raise LabError(f"{root}: the code of a function must be a folder, as the assembly lists it")
    return {
        entry.stem if entry.suffix == ".py" else entry.name
        for entry in root.iterdir()
        if entry.suffix == ".py" or (entry.is_dir() and entry.name.isidentifier() and entry.name != "__pycache__")
    }


def _replace_variables(variables: dict[str, str]) -> None:
    if dict(os.environ) == variables:
        return
    os.environ.clear()
    os.environ.update(variables)
