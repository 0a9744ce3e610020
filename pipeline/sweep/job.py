"""`python -m pipeline.sweep.job --multirun …`: the application that Hydra's launchers start for each point of a sweep.

It runs in this process, in other processes, or on a cluster. A job runs its commands in `jobs.json`, writes
their output to a log, and their exit code to a file. It stops them when the sweep is asked to stop, or has ended: the
process of the sweep holds a lock on the sweep's directory, which the kernel releases with it. A job holds a lock of its
own, which its commands inherit, so that no point is run twice at once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from pipeline.config import ROOT
from pipeline.files import write_atomically
from pipeline.jobs.launch import GRACE, STOPPED
from pipeline.locks import is_locked, try_lock

STATE = ".sweep"  # directory of the sweep's own files, in its directory
STOP = "stop"  # a file that ends the sweep in order
JOBS = "jobs.json"
LOCK = "lock"
INTERVAL = 0.5  # seconds between two checks whether to stop
ABOVE_GRACE = 30.0  # seconds that a run needs to end after its own processes


def run_job(directory: Path, name: str) -> int:
    """Run a job to its end and return the exit code of its first command that fails, or STOPPED if it did not begin.

    directory: directory of the sweep.
    """
    commands = json.loads((directory / STATE / JOBS).read_text(encoding="utf-8"))[name]
    with _own(directory, name) as lock, (directory / f"{name}.log").open("a", encoding="utf-8") as log:
        code = STOPPED if lock is None else _run_in_turn(commands, directory, log, lock)
        write_atomically(directory / STATE / f"{name}.json", json.dumps({"code": code}))
    return code


def stop_wanted(directory: Path) -> bool:
    """Return whether the sweep has been asked to stop, or its process has ended."""
    return (directory / STOP).exists() or not is_locked(directory / STATE / LOCK, shared=True)


@contextmanager
def _own(directory: Path, name: str) -> Iterator[IO[str] | None]:
    """Give the job's lock once no earlier attempt holds it; None if the sweep is to stop meanwhile."""
    with (directory / STATE / f"{name}.lock").open("a+") as stream:
        while not stop_wanted(directory):
            if try_lock(stream):
                yield stream
                return
            time.sleep(INTERVAL)
        yield None


def _run_in_turn(commands: list[list[str]], directory: Path, log: IO[str], lock: IO[str]) -> int:
    for command in commands:
        if code := _run(command, directory, log, lock):
            return code
    return 0


def _run(command: list[str], directory: Path, log: IO[str], lock: IO[str]) -> int:
    """Run one command, and stop it when the sweep stops."""
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC: python -m pipeline {' '.join(command)}", file=log, flush=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", *command],
        env={**os.environ, "PYTHONPATH": _python_path(), "BABELSHARD_PARENT": str(os.getpid())},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        pass_fds=[lock.fileno()],
    )
    try:
        while process.poll() is None and not stop_wanted(directory):
            _wait(process, INTERVAL)
    finally:  # the launcher may end this process, too
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            if not _wait(process, GRACE + ABOVE_GRACE):
                process.kill()
                process.wait()
    return process.returncode


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _python_path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def task(config: Any) -> int:
    """Run one job; Hydra calls this for each value of `job`."""
    return run_job(Path(config.directory), str(config.job))


def main() -> None:
    """Start Hydra, and ignore signals: the sweep gets them too, and tells the jobs when to stop."""
    import hydra

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # inherited by the launcher's processes
    hydra.main(version_base="1.3", config_path=None)(task)()


if __name__ == "__main__":
    from pipeline.sweep import job  # so that other processes find the task by its module

    job.main()
