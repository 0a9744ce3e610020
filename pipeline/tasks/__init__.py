"""Work that is cut into tasks, each of which can run anywhere: in this process, in others of this machine, or as jobs
of a cluster.

A task is a function at the top level of a module and its payload. Its result must not depend on where it runs, nor on
which other tasks there are. `run_once` lets a task that was finished before an interruption be.
"""

import pickle
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from pipeline.stage import stop_if_asked
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
    """The function's results, in the order of the payloads. directory: logs of jobs go there.

    The first error of a task is raised as it is, and the other tasks are ended. Raises ValueError for what cannot be
    sent to another process, TaskFailed for a task that was lost, Stopped when this process is asked to stop. May be
    called from several threads, which share the workers.
    """
    calls = [pack(function, payload, f"{title}: task {n}") for n, payload in enumerate(payloads, start=1)]
    if config.workers == 1 and config.launcher == "local":
        return [function(payload) for payload in _until_stopped(payloads, title)]
    results: dict[int, Any] = {}
    quiet = len(calls) < 2 or not sys.stderr.isatty()
    with (
        closing(_ended(calls, config, directory, title)) as ended,
        tqdm(total=len(calls), desc=title, unit="task", leave=False, disable=quiet) as bar,
    ):
        for number, outcome in ended:
            results[number] = pickle.loads(outcome).value()
            bar.update()
    return [results[number] for number in range(len(calls))]


def in_turn(function: Callable[[Payload], Result], payloads: Sequence[Payload]) -> list[Result]:
    """Every task in this process."""
    return [function(payload) for payload in payloads]


def shard_runner(
    config: DataConfig, rows: int, directory: Path, title: str
) -> Callable[[Callable[[Payload], Result], Sequence[Payload]], list[Result]]:
    """What runs the shards of so many rows: `run_tasks`, or this process where that would take longer to begin."""
    if rows < _FEW_ROWS:
        return in_turn
    return partial(run_tasks, config=config, directory=directory, title=title)


def check_launcher(config: DataConfig) -> None:
    """Refuse, before any work, what this host cannot do."""
    if config.launcher == "submitit":
        check_jobs(config.jobs)


def _ended(
    calls: Sequence[bytes], config: DataConfig, directory: Path, title: str
) -> Generator[tuple[int, bytes], None, None]:
    """Number and outcome of each call, as they end."""
    if config.launcher == "submitit":
        return run_in_jobs(calls, config=config.jobs, directory=directory, title=title)
    return run_in_workers(calls, workers=config.workers, title=title)


def _until_stopped(payloads: Sequence[Payload], title: str) -> Iterator[Payload]:
    for payload in payloads:
        stop_if_asked(title)
        yield payload
