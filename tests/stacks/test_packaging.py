"""Assets: what is in them, what their hash depends on, and what happens when they cannot be made."""

from __future__ import annotations

import marshal
import sys
from pathlib import Path

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_lambda as lambda_

from stacks.constructs import packaging
from stacks.constructs.packaging import FUNCTIONS, INSTALL, Dependencies, PackagingError, folder_code

FAKE_PIP = """#!{python}
import pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write("\\n".join(sys.argv[1:]) + "\\n--\\n")
target = pathlib.Path(next(a for a in sys.argv if a.startswith("--target=")).removeprefix("--target="))
for name in {files!r}:
    path = target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("VALUE = 1\\n")
sys.stderr.write({stderr!r})
sys.exit({status})
"""

LIBRARY = ["library/__init__.py", "library-1.dist-info/METADATA", "library-1.dist-info/RECORD", "bin/tool"]


class Pip:
    """Stands in for `python -m pip`: writes files, remembers its calls."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._real = sys.executable
        self._path = folder / "python"
        patch.setattr(sys, "executable", str(self._path))
        self.does()

    def does(self, files: list[str] = LIBRARY, stderr: str = "", status: int = 0) -> None:
        self._path.write_text(FAKE_PIP.format(python=self._real, files=files, stderr=stderr, status=status))
        self._path.chmod(0o755)

    @property
    def calls(self) -> int:
        log = self._folder / "calls"
        return log.read_text().count("--\n") if log.exists() else 0


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pip:
    folder = tmp_path / "pip"
    folder.mkdir()
    return Pip(folder, monkeypatch)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text("library==1 --hash=sha256:00\n")
    return path


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A function's folders with what must not ship lying about."""
    root = tmp_path / "sources"
    for name in (
        "shared/key.py",
        "shared/__pycache__/key.cpython-311.pyc",
        "shared/tests/test_key.py",
        "one/handler.py",
        "one/data.json",
        "one/.hidden",
        "one/deep/__init__.py",
        "other/handler.py",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("VALUE = 1\n")
    return root


def assets(outdir: Path) -> list[Path]:
    return sorted(path for path in outdir.iterdir() if path.is_dir() and path.name.startswith("asset."))


def layer(outdir: Path, lock: Path) -> list[Path]:
    app = App(outdir=str(outdir), analytics_reporting=False, builtin_cloud_formation_validation=False)
    Dependencies(Stack(app, "Stack"), "Layer", lock=lock)
    app.synth()
    return assets(outdir)


def function(outdir: Path, root: Path, *folders: str) -> list[Path]:
    app = App(outdir=str(outdir), analytics_reporting=False, builtin_cloud_formation_validation=False)
    lambda_.Function(
        Stack(app, "Stack"),
        "Function",
        code=folder_code(*folders, root=root),
        handler="one.handler.handler",
        runtime=packaging.RUNTIME,
    )
    app.synth()
    return assets(outdir)


def names(asset: Path) -> list[str]:
    return sorted(path.relative_to(asset).as_posix() for path in asset.rglob("*") if path.is_file())


class TestLayer:
    def test_holds_the_packages_and_nothing_that_differs_between_machines(
        self, tmp_path: Path, pip: Pip, lock: Path
    ) -> None:
        pip.does([*LIBRARY, "library/__pycache__/x.pyc"])
        (asset,) = layer(tmp_path / "out", lock)
        assert names(asset) == ["python/library-1.dist-info/METADATA", "python/library/__init__.py"]

    def test_an_unchanged_synth_installs_nothing(self, tmp_path: Path, pip: Pip, lock: Path) -> None:
        first = layer(tmp_path / "out", lock)
        assert pip.calls == 1
        assert layer(tmp_path / "out", lock) == first
        assert pip.calls == 1

    def test_a_changed_lock_installs_again(self, tmp_path: Path, pip: Pip, lock: Path) -> None:
        layer(tmp_path / "out", lock)
        lock.write_text("library==2 --hash=sha256:00\n")
        assert len(layer(tmp_path / "out", lock)) == 2
        assert pip.calls == 2

    def test_stacks_of_one_app_share_the_asset(self, tmp_path: Path, pip: Pip, lock: Path) -> None:
        app = App(outdir=str(tmp_path / "out"), builtin_cloud_formation_validation=False)
        for name in ("One", "Two"):
            Dependencies(Stack(app, name), "Layer", lock=lock)
        app.synth()
        assert (pip.calls, len(assets(tmp_path / "out"))) == (1, 1)

    @pytest.mark.parametrize(
        ("stderr", "hint"),
        [
            (
                "ERROR: no matching hash",
                "check the package index and that the lock file was compiled with hashes",
            ),
            ("python: No module named pip", "has no pip: run `"),
        ],
    )
    def test_a_failing_pip_is_told_and_leaves_nothing_half_made(
        self, tmp_path: Path, pip: Pip, lock: Path, stderr: str, hint: str
    ) -> None:
        out = tmp_path / "out"
        pip.does(["library/half.py"], stderr=stderr, status=1)
        with pytest.raises(RuntimeError) as refused:
            layer(out, lock)
        for part in (str(lock), stderr, hint):
            assert part in str(refused.value)
        assert not [path for path in out.rglob("*") if path.is_file()]
        pip.does()
        (asset,) = [path for path in layer(out, lock) if names(path)]
        assert "python/library/__init__.py" in names(asset)

    def test_compiled_packages_are_refused_by_name(self, tmp_path: Path, pip: Pip, lock: Path) -> None:
        pip.does([*LIBRARY, "library/fast.so"])
        with pytest.raises(RuntimeError, match=r"must be pure Python .* first library/fast.so"):
            layer(tmp_path / "out", lock)

    def test_pip_is_told_the_target_and_no_host(self) -> None:
        for wanted in (
            "--require-hashes",
            "--only-binary=:all:",
            "--platform=manylinux2014_aarch64",
            "--python-version=3.13",
            "--implementation=cp",
            "--no-deps",
        ):
            assert wanted in INSTALL
        assert not [argument for argument in INSTALL if "index" in argument or "//" in argument]

    def test_the_lock_file_names_hashes_and_no_host(self) -> None:
        text = (FUNCTIONS / "requirements.txt").read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text and "--index" not in text and "--find-links" not in text


class TestFunctionCode:
    def test_holds_the_named_folders_without_tests_and_caches(self, tmp_path: Path, sources: Path) -> None:
        (asset,) = function(tmp_path / "out", sources, "shared", "one")
        assert names(asset) == ["one/data.json", "one/deep/__init__.py", "one/handler.py", "shared/key.py"]

    def test_the_real_functions_ship_no_cache_and_no_test(self, tmp_path: Path) -> None:
        for folder in ("charge_order", "send_receipt", "index_order"):
            (asset,) = function(tmp_path / folder, FUNCTIONS, "shared", folder)
            assert {Path(name).parts[0] for name in names(asset)} == {"shared", folder}
            assert not [name for name in names(asset) if "__pycache__" in name or "test" in name]
            assert f"{folder}/handler.py" in names(asset)

    def test_hash_follows_content_and_name_and_nothing_else(self, tmp_path: Path, sources: Path) -> None:
        (first,) = function(tmp_path / "1", sources, "shared", "one")
        (sources / "shared/__pycache__/key.cpython-311.pyc").write_text("other")
        (sources / "other/handler.py").write_text("other")
        (sources / "one/handler.py").touch()
        (same,) = function(tmp_path / "2", sources, "one", "shared")
        assert same.name == first.name
        (sources / "one/handler.py").rename(sources / "one/main.py")
        (renamed,) = function(tmp_path / "3", sources, "shared", "one")
        (sources / "one/main.py").write_text("VALUE = 2\n")
        (changed,) = function(tmp_path / "4", sources, "shared", "one")
        assert len({first.name, renamed.name, changed.name}) == 3

    @pytest.mark.parametrize(("folder", "why"), [("absent", "is missing"), ("empty", "holds no file that ships")])
    def test_a_folder_without_code_is_refused(self, sources: Path, folder: str, why: str) -> None:
        (sources / "empty").mkdir()
        with pytest.raises(PackagingError, match=f"sources/{folder} {why}"):
            folder_code("shared", folder, root=sources)


class TestBytecode:
    def test_ships_for_the_target_version_only(
        self, tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(packaging, "PYTHON", (2, 7))
        (without,) = function(tmp_path / "1", sources, "one")
        monkeypatch.setattr(packaging, "PYTHON", sys.version_info[:2])
        (with_bytecode,) = function(tmp_path / "2", sources, "one")
        assert not list(without.rglob("*.pyc"))
        assert len(list(with_bytecode.rglob("*.pyc"))) == 2
        assert with_bytecode.name == without.name  # the hash is taken over sources

    def test_carries_lambdas_paths_and_is_never_rechecked(
        self, tmp_path: Path, pip: Pip, lock: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(packaging, "PYTHON", sys.version_info[:2])
        (code,) = function(tmp_path / "1", sources, "one")
        (packages,) = layer(tmp_path / "2", lock)
        for asset, wanted in (
            (code, "/var/task/one/handler.py"),
            (packages, "/opt/python/library/__init__.py"),
        ):
            (compiled,) = asset.rglob(f"{Path(wanted).parent.name}/__pycache__/{Path(wanted).stem}.*.pyc")
            content = compiled.read_bytes()
            assert int.from_bytes(content[4:8], "little") == 0b01  # hash-based and unchecked
            assert marshal.loads(content[16:]).co_filename == wanted  # noqa: S302

    def test_a_module_that_does_not_compile_is_refused(
        self, tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(packaging, "PYTHON", sys.version_info[:2])
        (sources / "one/handler.py").write_text("def broken(:\n")
        with pytest.raises(RuntimeError, match=r"one/handler.py does not compile, correct it"):
            function(tmp_path / "out", sources, "one")
