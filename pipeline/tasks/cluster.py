"""What this process asks of a cluster: which jobs of a name there still are, and to cancel them."""

import logging
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Collection
from typing import Protocol

logger = logging.getLogger(__name__)

REPORT = 60.0  # seconds between reports of how jobs stand
GRACE = 90.0  # seconds in which cancelled jobs leave the queue; Slurm's KillWait is 30


class Cluster(Protocol):
    """interval: seconds between looks for results. query: seconds between questions to the cluster. late: seconds after
    which the result of a job that is gone is no longer expected to appear on the shared file system."""

    interval: float
    query: float
    late: float

    def alive(self) -> Collection[str] | None:
        """The jobs that are waiting or running; None where the cluster does not say."""

    def cancel(self) -> None:
        """Ask all jobs to end."""


class Slurm:
    """The jobs of one name, by the commands that every cluster has (sacct needs a database)."""

    interval = 1.0
    query = 10.0
    late = 30.0

    def __init__(self, name: str, title: str) -> None:
        self._name = name
        self._title = title
        self._reported, self._report_at = "", 0.0

    def alive(self) -> Collection[str] | None:
        format_ = "--format=%i|%T|%r"
        done = subprocess.run(
            ["squeue", "--noheader", "--array", f"--name={self._name}", format_],
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        if done.returncode:
            self._report(f"squeue says: {done.stderr.strip()}")
            return None
        lines = [line.strip().split("|") for line in done.stdout.splitlines() if line.strip()]
        counts = Counter(f"{state.lower()}{f' ({why})' if state == 'PENDING' else ''}" for _, state, why in lines)
        self._report(", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
        return {number for number, _, _ in lines}

    def cancel(self) -> None:
        subprocess.run(["scancel", f"--name={self._name}"], stdin=subprocess.DEVNULL, start_new_session=True)

    def wait(self) -> None:
        """Until none of them is left, or a time of grace is over."""
        deadline = time.monotonic() + GRACE
        while self.alive() and time.monotonic() < deadline:
            time.sleep(1.0)

    def _report(self, text: str) -> None:
        """Say how it stands, when that changed, and not too often."""
        if text and text != self._reported and time.monotonic() >= self._report_at:
            logger.info("%s: %s", self._title, text)
            self._reported, self._report_at = text, time.monotonic() + REPORT


class ThisMachine:
    """submitit's own processes, to try out what a cluster would do; each job's number is that of its process."""

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
    """Of a child of this process, which is forgotten once it has ended."""
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False
