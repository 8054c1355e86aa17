"""A local AWS (MiniStack) for the length of a test session: one process on 127.0.0.1, all its files in one folder."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-local" / "bin" / "python"
PROGRAM = ROOT / ".venv-local" / "bin" / "ministack"

HOST = "127.0.0.1"
ACCOUNT = "000000000000"
REGION = "us-east-1"

START_WITHIN = 60.0
"""Seconds; about one on an idle machine."""

STOP_WITHIN = 10.0
"""Seconds between the request to stop and the kill."""


@dataclass(frozen=True)
class LocalAws:
    """A running local AWS: where it answers, and the file that holds its log and its functions' log lines."""

    port: int
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """What makes the CDK CLI and the SDK talk to it, and to nothing else."""
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self.port}",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": HOST,
            "no_proxy": HOST,
        }

    def last_lines(self, count: int = 80) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


@contextmanager
def local_aws(folder: Path) -> Iterator[LocalAws]:
    """Start one that keeps its state and log in `folder`; stop it, its functions' processes included, at the end.

    Raises `RuntimeError` with its log when it does not come up.
    """
    aws = LocalAws(port=_free_port(), log=folder / "local-aws.log")
    with aws.log.open("wb") as log:
        process = subprocess.Popen(
            [PYTHON, "-m", "ministack"],
            cwd=folder,
            env=_environment(aws.port, folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a process group of its own, which holds the functions' processes too
        )
    try:
        _wait_until_ready(process, aws)
        yield aws
    finally:
        _stop(process)


def _environment(port: int, folder: Path) -> dict[str, str]:
    """Nothing of the caller's but PATH: the functions' processes inherit it, and on AWS they get nothing either."""
    state = folder / "state"
    state.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(state),
        "TMPDIR": str(state),
        "STATE_DIR": str(state / "services"),
        "S3_DATA_DIR": str(state / "s3"),
        "BIND_HOST": HOST,
        "MINISTACK_HOST": HOST,
        "GATEWAY_PORT": str(port),
        "LAMBDA_EXECUTOR": "local",
        # It would open further ports, and look for its containers in a Docker daemon and remove them.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "DOCKER_HOST": f"unix://{state}/no-docker",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_until_ready(process: subprocess.Popen[bytes], aws: LocalAws) -> None:
    deadline = time.monotonic() + START_WITHIN
    while not _ready(aws.port):
        if process.poll() is not None:
            raise RuntimeError(
                f"The local AWS ended with status {process.returncode} before it was ready:\n{aws.last_lines()}"
            )
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"The local AWS was not ready on {HOST}:{aws.port} after {START_WITHIN:.0f} s:\n{aws.last_lines()}"
            )
        time.sleep(0.1)


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/_ministack/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False  # nobody listens yet
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # the functions' processes ended with it
