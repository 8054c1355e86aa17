"""The CDK CLI as a person calls it: bootstrap, deploy, diff, on one assembly that is synthesized once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SHORT_TIMES = {"queue_function_timeout": 3}
"""Settings in seconds: they keep the visibility timeout, six times the function's, under 20 s.

The other functions keep theirs. Nothing here waits for them, and shorter calls would only fail more often on a busy
machine; for events that cannot be made good, because the local AWS does not retry what a rule sends to a function.
"""

COMMAND_WITHIN = 300.0
"""Seconds for one command; about ten on an idle machine."""


class CdkError(RuntimeError):
    """A command of the CDK CLI failed; the message holds the command and what it printed."""


@dataclass(frozen=True)
class Cdk:
    """Runs commands with `environment` added to this process's, of which AWS and CDK variables are taken away.

    Everything it writes goes below `folder`, never to the repository's own `cdk.out`.
    """

    folder: Path
    environment: Mapping[str, str]

    @property
    def assembly(self) -> Path:
        """The synthesized app."""
        return self.folder / "cdk.out"

    def synth(self, settings: Mapping[str, int]) -> None:
        """Synthesize the app with these settings."""
        _reuse_assets(ROOT / "cdk.out", self.assembly)
        context = [f"--context={name}={value}" for name, value in settings.items()]
        self._run(ROOT, "synth", "--quiet", f"--output={self.assembly}", *context)

    def bootstrap(self, account: str, region: str) -> None:
        """Prepare an account and region for deployments."""
        self._run(self.folder, "bootstrap", f"aws://{account}/{region}")

    def deploy(self) -> dict[str, str]:
        """Deploy all stacks and return their outputs by name, exports between stacks left out."""
        file = self.folder / "outputs.json"
        self._on_assembly("deploy", "--all", "--require-approval=never", f"--outputs-file={file}")
        return outputs(json.loads(file.read_text()))

    def diff(self) -> None:
        """Compare what is deployed with the assembly. Raises `CdkError` with the differences, if any."""
        self._on_assembly("diff", "--fail")

    def _on_assembly(self, command: str, *arguments: str) -> None:
        self._run(self.folder, command, f"--app={self.assembly}", *arguments)

    def _run(self, folder: Path, *arguments: str) -> None:
        __tracebackhide__ = True  # what the CLI printed says it all
        command = [_program(), *arguments, "--ci", "--no-notices", "--no-color"]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_WITHIN,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            printed = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout
            raise CdkError(f"`{_shown(command)}` took more than {COMMAND_WITHIN:.0f} s:\n{printed or ''}") from None
        if done.returncode:
            raise CdkError(f"`{_shown(command)}` ended with status {done.returncode}:\n{done.stdout}")

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_", "JSII_"))}
        return {
            **own,
            "PATH": _path(),
            "CDK_HOME": str(self.folder / "cdk-home"),
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            **self.environment,
        }


def outputs(stacks: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Merge the outputs of all stacks. Raises `ValueError` when two stacks use one name."""
    merged: dict[str, str] = {}
    for stack, values in stacks.items():
        for name, value in values.items():
            if name.startswith("ExportsOutput"):
                continue
            if name in merged:
                raise ValueError(f"Two stacks have an output {name}, one of them is {stack}: give them different names")
            merged[name] = value
    return merged


def _path() -> str:
    """This Python first, since `cdk.json` starts `python3`; then the project's own Node programs."""
    return os.pathsep.join((str(Path(sys.executable).parent), str(ROOT / "node_modules" / ".bin"), os.environ["PATH"]))


def _program() -> str:
    program = shutil.which("cdk", path=_path())
    if program is None:
        raise CdkError("The CDK CLI is not installed, wanted `cdk` in node_modules/.bin: run `make setup`")
    return program


def _shown(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])


def _reuse_assets(source: Path, target: Path) -> None:
    """Take over what an earlier `make synth` packaged, so that nothing is installed, or downloaded, again.

    Only what a finished synth lists: asset folders are named by the hash of what they are made of.
    """
    for listing in source.glob("*.assets.json"):
        for asset in json.loads(listing.read_text())["files"].values():
            made = source / asset["source"]["path"]
            if made.is_dir():
                shutil.copytree(made, target / made.name, dirs_exist_ok=True)
