"""`python -m pipeline.sweep.job --multirun …`: the application that Hydra's launchers start, here, in other processes
or on a cluster; one job is one point of a sweep.

A job runs the commands that `jobs.json` has for it, keeps what they say in a log, and leaves how they ended in a file.
It asks them to stop when the sweep has been asked to, or is gone: whoever runs it holds a lock on the sweep's
directory, which the kernel releases with it. A job holds a lock of its own, which its commands inherit: one point is
never run by two.
"""

import fcntl
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
from pipeline.jobs.launch import GRACE, STOPPED
from pipeline.stage import try_lock, write_atomically

STATE = ".sweep"  # what a sweep keeps for itself, in its directory
STOP = "stop"  # a file that ends the sweep in order
JOBS = "jobs.json"
LOCK = "lock"
INTERVAL = 0.5  # seconds between looks whether to stop
ABOVE_GRACE = 30.0  # seconds that a run takes to end once its own processes have


def run_job(directory: Path, name: str) -> int:
    """Run a job to its end; the exit code of the first of its commands that fails, STOPPED where it was not begun.

    directory: of the sweep. Never raises for what a command did."""
    commands = json.loads((directory / STATE / JOBS).read_text(encoding="utf-8"))[name]
    with _own(directory, name) as lock, (directory / f"{name}.log").open("a", encoding="utf-8") as log:
        code = STOPPED if lock is None else _run_in_turn(commands, directory, log, lock)
        write_atomically(directory / STATE / f"{name}.json", json.dumps({"code": code}))
    return code


def stop_wanted(directory: Path) -> bool:
    """Whether the sweep has been asked to stop, or nobody runs it any more."""
    return (directory / STOP).exists() or not _held(directory / STATE / LOCK)


def _held(path: Path) -> bool:
    with path.open("a+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _own(directory: Path, name: str) -> Iterator[IO[str] | None]:
    """The job's lock, waited for as long as an earlier attempt at it still runs; None where the sweep is to stop."""
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
    """One command; asked to stop with the sweep."""
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
    finally:  # also where the launcher ends this process
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
    """What Hydra calls for each value of `job`."""
    return run_job(Path(config.directory), str(config.job))


def main() -> None:
    """The whole group gets a signal that is meant for the sweep; the sweep says when to stop."""
    import hydra

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # inherited by the launcher's processes
    hydra.main(version_base="1.3", config_path=None)(task)()


if __name__ == "__main__":
    from pipeline.sweep import job  # so that other processes find the task by its module

    job.main()
