"""Work that is cut into tasks, which run in this process, in other processes of this machine, or as jobs of a cluster.

A task is a function at the top level of a module and its payload. Its result must not depend on where it runs, nor on
other tasks. `run_once` skips a task that was finished before an interruption.
"""

import pickle
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from pipeline.live import is_live
from pipeline.stopping import stop_if_asked
from pipeline.tasks.call import TaskFailed, pack
from pipeline.tasks.config import DataConfig, JobConfig
from pipeline.tasks.jobs import check_jobs, run_in_jobs
from pipeline.tasks.once import run_once
from pipeline.tasks.pool import end_workers, run_in_workers
from pipeline.tasks.threads import side_by_side

__all__ = [
    "DataConfig",
    "JobConfig",
    "TaskFailed",
    "check_launcher",
    "end_workers",
    "in_turn",
    "run_once",
    "run_tasks",
    "shard_runner",
    "side_by_side",
]

_FEW_ROWS = 20_000

Payload = TypeVar("Payload")
Result = TypeVar("Result")


def run_tasks(
    function: Callable[[Payload], Result],
    payloads: Sequence[Payload],
    *,
    config: DataConfig,
    directory: Path,
    title: str,
) -> list[Result]:
    """Call the function with each payload and return the results in the order of the payloads.

    Several threads may call this at once, and share the workers.
    directory: directory for logs of jobs.
    Raises the first error of a task as it is, and ends the other tasks.
    Raises ValueError for a call that cannot be sent to another process.
    Raises TaskFailed for a task that was lost, and Stopped when this process is asked to stop.
    """
    calls = [pack(function, payload, f"{title}: task {n}") for n, payload in enumerate(payloads, start=1)]
    if config.workers == 1 and config.launcher == "local":
        return [function(payload) for payload in _until_stopped(payloads, title)]
    results: dict[int, Any] = {}
    quiet = len(calls) < 2 or not is_live(sys.stderr)
    with (
        closing(_ended(calls, config, directory, title)) as ended,
        tqdm(total=len(calls), desc=title, unit="task", leave=False, disable=quiet) as bar,
    ):
        for number, outcome in ended:
            results[number] = pickle.loads(outcome).value()
            bar.update()
    return [results[number] for number in range(len(calls))]


def in_turn(function: Callable[[Payload], Result], payloads: Sequence[Payload]) -> list[Result]:
    """Run every task in this process."""
    return [function(payload) for payload in payloads]


def shard_runner(
    config: DataConfig, rows: int, directory: Path, title: str
) -> Callable[[Callable[[Payload], Result], Sequence[Payload]], list[Result]]:
    """Return the function that runs shards: `run_tasks`, or `in_turn` for few rows, because processes start slowly."""
    if rows < _FEW_ROWS:
        return in_turn
    return partial(run_tasks, config=config, directory=directory, title=title)


def check_launcher(config: DataConfig) -> None:
    """Raise ValueError, before any work, if this host cannot start the jobs of the configuration."""
    if config.launcher == "submitit":
        check_jobs(config.jobs)


def _ended(
    calls: Sequence[bytes], config: DataConfig, directory: Path, title: str
) -> Generator[tuple[int, bytes], None, None]:
    """Yield number and outcome of each call, as they end."""
    if config.launcher == "submitit":
        return run_in_jobs(calls, config=config.jobs, directory=directory, title=title)
    return run_in_workers(calls, workers=config.workers, title=title)


def _until_stopped(payloads: Sequence[Payload], title: str) -> Iterator[Payload]:
    for payload in payloads:
        stop_if_asked(title)
        yield payload
