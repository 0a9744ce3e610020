"""Queries to a cluster: list the jobs of a name that still exist, and cancel them."""

import logging
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Collection
from typing import Protocol

logger = logging.getLogger(__name__)

REPORT = 60.0  # seconds between reports on the state of jobs
GRACE = 90.0  # seconds in which cancelled jobs leave the queue; Slurm's KillWait is 30


class Cluster(Protocol):
    """A cluster that runs jobs.

    interval: seconds between looks for results.
    query: seconds between queries to the cluster.
    late: seconds that the result of an ended job may need to appear on the shared file system.
    """

    interval: float
    query: float
    late: float

    def alive(self) -> Collection[str] | None:
        """Return the jobs that wait or run; None where the cluster does not answer."""

    def cancel(self) -> None:
        """Ask all jobs to end."""


class Slurm:
    """The jobs of one name on a Slurm cluster. sacct is not used, because it needs a database."""

    interval = 1.0
    query = 10.0
    late = 30.0

    def __init__(self, name: str, title: str) -> None:
        self._name = name
        self._title = title
        self._reported, self._report_at = "", 0.0

    def alive(self) -> Collection[str] | None:
        format_ = "--format=%i|%T|%r"
        answer = subprocess.run(
            ["squeue", "--noheader", "--array", f"--name={self._name}", format_],
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        if answer.returncode:
            self._report(f"squeue says: {answer.stderr.strip()}")
            return None
        lines = [line.strip().split("|") for line in answer.stdout.splitlines() if line.strip()]
        counts = Counter(f"{state.lower()}{f' ({why})' if state == 'PENDING' else ''}" for _, state, why in lines)
        self._report(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
        return {number for number, _, _ in lines}

    def cancel(self) -> None:
        subprocess.run(["scancel", f"--name={self._name}"], stdin=subprocess.DEVNULL, start_new_session=True)

    def wait(self) -> None:
        """Wait until no job is left, or a time of grace is over."""
        deadline = time.monotonic() + GRACE
        while self.alive() and time.monotonic() < deadline:
            time.sleep(1.0)

    def _report(self, text: str) -> None:
        """Log the state of the jobs when it changed, at most once in REPORT seconds."""
        if text and text != self._reported and time.monotonic() >= self._report_at:
            logger.info("%s: %s", self._title, text)
            self._reported, self._report_at = text, time.monotonic() + REPORT


class ThisMachine:
    """submitit's own processes, which stand in for a cluster; each job's number is that of its process."""

    interval = 0.1
    query = 0.1
    late = 0.3

    def __init__(self) -> None:
        self.processes: set[str] = set()

    def alive(self) -> Collection[str] | None:
        return {number for number in self.processes if _running(int(number))}

    def cancel(self) -> None:
        for number in self.alive() or ():
            os.kill(int(number), signal.SIGTERM)


def _running(process: int) -> bool:
    """Return whether a child of this process still runs."""
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False
