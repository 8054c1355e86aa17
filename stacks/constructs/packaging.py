"""Assets without Docker: one layer of third-party packages, and allow-listed folders of a function's own
code.

CDK calls `try_bundle` only when its output folder does not hold an asset with the same hash, so an
unchanged synth installs nothing. The hash is taken over sources and parameters, never over what an
installation wrote: it is the same on every machine, with and without bytecode. With bundling switched off
(context `aws:cdk:bundling-stacks` set to `[]`) nothing is copied or installed.
"""

from __future__ import annotations

import hashlib
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"
PYTHON = (3, 13)
RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64

INSTALL = (
    "install",
    "--require-hashes",
    "--only-binary=:all:",
    "--platform=manylinux2014_aarch64",
    f"--python-version={PYTHON[0]}.{PYTHON[1]}",
    "--implementation=cp",
    "--no-deps",
    "--no-compile",
    "--no-input",
    "--quiet",
    "--disable-pip-version-check",
)
"""Arguments of pip; not compiled, because its bytecode would carry this machine's paths and version."""

LAYOUT = "1"
"""Part of every hash: raise it when this module changes what an asset holds."""

NATIVE = (".so", ".pyd", ".dylib", ".dll")


class PackagingError(RuntimeError):
    """An asset cannot be made; the message says why and what to do."""


def folder_code(*folders: str, root: Path = FUNCTIONS) -> lambda_.Code:
    """The code of one function: the named folders of `root`, at the asset's own root, and nothing else.

    Raises `PackagingError` when a folder is missing or empty.
    """
    sources = [root / folder for folder in sorted(set(folders))]
    files = [path for source in sources for path in source_files(source)]
    return _code(root, CopyFolders(sources), _digest(root, files, ("function", LAYOUT)))


class Dependencies(lambda_.LayerVersion):
    """The packages of the lock file as a layer.

    Each stack makes its own layer from the same asset: an exported layer ARN could not change while another
    stack uses it.
    """

    def __init__(self, scope: Construct, construct_id: str, *, lock: Path = FUNCTIONS / "requirements.txt") -> None:
        super().__init__(
            scope,
            construct_id,
            code=_code(lock.parent, InstallPackages(lock), _digest(lock.parent, [lock], ("layer", LAYOUT, *INSTALL))),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[ARCHITECTURE],
        )


@jsii.implements(ILocalBundling)
class CopyFolders:
    """Copies source folders into the asset."""

    def __init__(self, sources: Sequence[Path]) -> None:
        self._sources = sources

    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        """Called by CDK with the folder to fill."""
        out = Path(output_dir)
        for source in self._sources:
            for path in source_files(source):
                target = out / source.name / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        compile_for_target(out, "/var/task")
        return True


@jsii.implements(ILocalBundling)
class InstallPackages:
    """Installs a hashed lock file for the target platform into `python/` of the layer."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock

    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        """Called by CDK with the folder to fill; leaves that folder empty when the installation fails."""
        packages = Path(output_dir) / "python"
        try:
            install(self._lock, packages)
            strip(packages)
            refuse_native(packages)
            compile_for_target(packages, "/opt/python")
        except BaseException:
            shutil.rmtree(packages, ignore_errors=True)
            raise
        return True


def install(lock: Path, target: Path) -> None:
    """Run pip for the target platform. Raises `PackagingError` with pip's own words when it fails."""
    command = [sys.executable, "-m", "pip", *INSTALL, f"--requirement={lock}", f"--target={target}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        missing = "No module named pip" in done.stderr
        hint = (
            f"{sys.executable} has no pip: run `{sys.executable} -m ensurepip`, or `uv pip install pip`"
            if missing
            else "check the package index and that the lock file was compiled with hashes"
        )
        raise PackagingError(f"pip could not install {lock} into the layer ({hint}):\n{done.stderr.strip()}")


def strip(packages: Path) -> None:
    """Remove what differs between machines or is of no use in Lambda: scripts, install records, bytecode."""
    shutil.rmtree(packages / "bin", ignore_errors=True)
    for info in packages.glob("*.dist-info"):
        for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            (info / name).unlink(missing_ok=True)
    for cache in list(packages.rglob("__pycache__")):
        shutil.rmtree(cache)


def refuse_native(packages: Path) -> None:
    """Refuse compiled extensions: the same layer also runs in the lab, whose platform is another."""
    native = sorted(path.relative_to(packages).as_posix() for path in packages.rglob("*") if path.suffix in NATIVE)
    if native:
        raise PackagingError(
            f"The layer must be pure Python and holds {len(native)} compiled file(s), first {native[0]}: "
            "pin a pure-Python release of that package, or leave it out of requirements.in"
        )


def compile_for_target(folder: Path, prefix: str) -> None:
    """Ship bytecode when this Python is the target's: saves the compilation at each cold start.

    Unchecked, because file times change on the way to Lambda; with `prefix` instead of this machine's
    paths. Raises `PackagingError` naming the module that does not compile.
    """
    if sys.version_info[:2] != PYTHON:
        return
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        try:
            py_compile.compile(
                str(path),
                cfile=str(path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"),
                dfile=f"{prefix}/{name}",
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        except py_compile.PyCompileError as error:
            raise PackagingError(f"{name} does not compile, correct it: {error.msg}") from None


def source_files(folder: Path) -> Iterator[Path]:
    """The files of a source folder that ship, in a fixed order: no caches, no tests, nothing hidden."""
    if not folder.is_dir():
        raise PackagingError(f"The folder {folder} is missing: a function's asset is made of it")
    found = False
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part in ("__pycache__", "tests") or part[0] == "." for part in parts):
            found = True
            yield path
    if not found:
        raise PackagingError(f"The folder {folder} holds no file that ships: a function's asset is made of it")


def _digest(root: Path, files: Iterable[Path], parameters: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in parameters:
        digest.update(f"{len(text)}:{text}".encode())
    for path in files:
        name, content = path.relative_to(root).as_posix(), path.read_bytes()
        digest.update(f"{len(name)}:{name}{len(content)}:".encode() + content)
    return digest.hexdigest()


def _code(source: Path, local: CopyFolders | InstallPackages, digest: str) -> lambda_.Code:
    return lambda_.Code.from_asset(
        str(source),
        asset_hash=digest,
        asset_hash_type=AssetHashType.CUSTOM,
        # CDK wants an image; it is never pulled, because local bundling either succeeds or raises.
        bundling=BundlingOptions(image=DockerImage.from_registry("never-pulled"), local=local),
    )
