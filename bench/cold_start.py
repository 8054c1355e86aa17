"""Cold start of the queue handler: fresh interpreters, imports and clients, nothing sent.

    python -m bench.cold_start [rounds]

Compared with boto3 plus one client, below which no handler gets, and with a stock handler (Logger, Metrics, layer,
batch) that has a provider client of its own. Everything a first message needs is made: ours makes clients at first
use, and that is counted. Bytecode is there, as in the deployed assets.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from bench.queue_events import ENVIRONMENT, FUNCTIONS

ROOT = Path(__file__).resolve().parents[1]
STARTS = {
    "boto3 + 1 client": "import boto3; boto3.client('dynamodb')",
    "stock handler": "import bench.stock_handler",
    "ours": (
        "from charge_order.handler import handler, charge_order\n"
        "from shared.invocation import logger\n"
        "from shared.operation import _records\n"
        "from shared.provider import bound_provider\n"
        "logger(); _records(charge_order.name); bound_provider()"
    ),
}
TIMED = "import time; started = time.perf_counter()\n{}\nprint((time.perf_counter() - started) * 1000)"


def main(rounds: int) -> None:
    """Start each in turn, so that what disturbs the machine disturbs all of them."""
    taken: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as bytecode:
        for _ in range(rounds + 1):
            for name, start in STARTS.items():
                taken[name].append(_start(start, bytecode))
    # The first start compiles and is not counted.
    median = {name: statistics.median(times[1:]) for name, times in taken.items()}
    print(f"cold start, medians of {rounds} fresh interpreters, Python {sys.version.split()[0]}")
    for name, times in taken.items():
        print(f"{name:17} {median[name]:6.0f} ms (best {min(times[1:]):.0f})")
    ours, boto3, stock = median["ours"], median["boto3 + 1 client"], median["stock handler"]
    print(f"ours is {ours / boto3:.2f} x boto3 + 1 client (wanted at most 1.2)")
    print(f"ours is {ours / stock:.2f} x the stock handler (wanted at most 0.85)")


def _start(code: str, bytecode: str) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = os.pathsep.join([str(FUNCTIONS), str(ROOT)])
    environment |= {**ENVIRONMENT, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": bytecode}
    command = [sys.executable, "-c", TIMED.format(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    return float(done.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
