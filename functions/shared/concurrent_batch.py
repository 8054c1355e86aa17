"""Several jobs of a batch at once. Optional: without this module `process_queue` runs one after the other."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from shared.aws import CONNECTIONS
from shared.once import Once

T = TypeVar("T")


def run_all(jobs: Sequence[Callable[[], T]], at_most: int, /) -> list[T]:
    """Run every job, up to `at_most` at once, and return the results in the order of the jobs.

    Each job runs in its own copy of the caller's context: context variables neither cross threads by themselves
    nor leak from one job into another. No job runs any more when this returns or raises, so no completion is left
    unwritten and none is frozen with the environment. What a job raises is raised; jobs that still wait are dropped.
    """
    waiting = iter([(number, copy_context(), job) for number, job in enumerate(jobs)])
    results: dict[int, T] = {}

    def work() -> None:
        try:
            for number, context, job in waiting:
                results[number] = context.run(job)
        finally:
            deque(waiting, maxlen=0)

    workers = [_threads().submit(work) for _ in range(min(len(jobs), at_most) - 1)]
    try:
        work()
    finally:
        wait(started := [worker for worker in workers if not worker.cancel()])
    for worker in started:
        worker.result()
    return [results[number] for number in range(len(jobs))]


@Once
def _threads() -> ThreadPoolExecutor:
    """Threads kept for the next batch, idle in between; the caller's own thread works as well."""
    return ThreadPoolExecutor(CONNECTIONS - 1)
