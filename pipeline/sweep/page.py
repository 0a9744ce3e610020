"""The page of a sweep, which `python -m eval report` makes from the finished runs."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from pipeline.config import ROOT
from pipeline.jobs.launch import JobFailed
from pipeline.sweep.job import STATE
from pipeline.sweep.launch import last_lines


class Page:
    """report.html in the sweep's directory. Leaving the block ends a process that is still writing it."""

    def __init__(self, directory: Path, losses: Sequence[float]) -> None:
        self._directory, self._losses = directory, losses
        self._log = directory / STATE / "report.log"
        self._records: list[tuple[str, int]] = []  # run.json of the runs, and when each was written
        self._names: list[str] = []  # points on the page
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def path(self) -> Path:
        """Path of the page."""
        return self._directory / "report.html"

    def is_current(self, names: Sequence[str]) -> bool:
        """Return whether the page is newer than all its sources. names: points that it shows."""
        if not self.path.exists():
            return False
        sources = [self._directory / "sweep.json", *(self._directory / name / "run.json" for name in names)]
        return all(file.stat().st_mtime <= self.path.stat().st_mtime for file in sources)

    def grow(self, finished: Callable[[], list[str]]) -> None:
        """Begin to write the page anew if more points are finished than it shows; does not wait for the end."""
        if self._process is not None and self._process.poll() is None:
            return
        records = sorted((str(file), file.stat().st_mtime_ns) for file in self._directory.glob("*/run.json"))
        if records == self._records:
            return
        self._records = records
        names = finished()
        if names and names != self._names:
            self._names, self._process = names, self._start(names)

    def write(self, names: Sequence[str]) -> None:
        """Write the page of these points and wait for it. Raises JobFailed."""
        self._end()
        process = self._start(names)
        self._process = process
        if process.wait():
            raise JobFailed(f"the page of the sweep was not written; {self._log} ends:\n{last_lines(self._log)}")

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._end()

    def _start(self, names: Sequence[str]) -> "subprocess.Popen[bytes]":
        losses = ["--losses", ",".join(f"{loss:g}" for loss in self._losses)] if self._losses else []
        runs = [f"{name}={self._directory / name}" for name in names]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "eval",
                    "report",
                    "--replace",
                    "1",
                    "--out",
                    str(self._directory),
                    *losses,
                    *runs,
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
