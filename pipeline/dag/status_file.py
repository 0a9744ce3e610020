"""Writes the status of a run: `status.json` in `runs/<name>`, from the command that makes the run."""

import json
import logging
import os
import platform
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.dag.status import STATUS, now, stage_progress
from pipeline.dag.store import StageState
from pipeline.ending import ending_of
from pipeline.files import check_writable, write_atomically

logger = logging.getLogger(__name__)


class StatusFile:
    """A listener of the store that writes `status.json`. An error while writing does not end the run."""

    def __init__(self, directory: Path, *, steps: Sequence[str] = ()) -> None:
        self._path = directory / STATUS
        self._lock = threading.Lock()
        self.directory = directory
        self._warned = False
        self._stages: dict[Path, dict[str, Any]] = {}
        self._record: dict[str, Any] = {"state": "running", "pid": os.getpid(), "host": platform.node()}
        self._record |= {"started": now().isoformat(), "batch": None, "steps": list(steps), "expected": {}}
        self._write()

    def describe(self, *, recipe: str, pairs: Sequence[str]) -> None:
        with self._lock:
            self._record |= {"recipe": recipe, "pairs": [*pairs]}
            self._write()

    @property
    def begun(self) -> bool:
        """True once a stage has begun, other than to fetch the corpus, by which its languages are known."""
        stages = self._stages.values()
        return any(stage["state"] != "done" or not stage["title"].startswith("fetch ") for stage in stages)

    def stage(self, title: str, state: StageState, directory: Path) -> None:
        with self._lock:
            stage = self._stages.get(directory)
            if stage is not None and state in ("waiting", "reused") and stage["state"] in ("running", "done"):
                return  # another thread of this process made it while this one waited
            if stage is None or state == "running":
                stage = {"title": title, "started": now().isoformat(), "directory": str(directory), "resumed_at": 0.0}
                self._stages[directory] = stage
            if state == "running":
                stage["resumed_at"] = stage_progress(title, directory).get("fraction") or 0.0
            took = (now() - datetime.fromisoformat(stage["started"])).total_seconds()
            stage.update(state=state, seconds=None if state in ("running", "waiting") else took)
            self._write()

    def batch(self, what: str, *, num_done: int, total: int, seconds_left: float) -> None:
        record = {"what": what, "done": num_done, "total": total, "seconds_left": seconds_left, "at": now().isoformat()}
        with self._lock:
            self._record["batch"] = record
            self._write()

    def expect(self, **estimates: float | None) -> None:
        with self._lock:
            self._record["expected"] |= {what: value for what, value in estimates.items() if value is not None}
            self._write()

    def end(self, state: str, error: str = "") -> None:
        with self._lock:
            self._record["state"] = state
            self._write(error)

    def _write(self, error: str = "") -> None:
        record = {**self._record, "updated": now().isoformat(), "stages": list(self._stages.values()), "error": error}
        try:
            write_atomically(self._path, json.dumps(record, ensure_ascii=False, indent=1))
        except OSError as problem:
            if not self._warned:
                logger.warning("warning: %s could not be written: %s", self._path, problem)
            self._warned = True


@contextmanager
def recorded(directory: Path, *, steps: Sequence[str] = ()) -> Iterator[StatusFile]:
    """Keep `status.json` in a run's directory as long as the block runs, and write how it ended.

    steps: as in RunStatus.
    A wrong setting that shows before the work on the text leaves the directory as it was: a finished run stays
    finished. Raises ValueError where the directory cannot be written.
    """
    before = _earlier(directory)
    check_writable(directory, "runtime.runs")
    status = StatusFile(directory, steps=steps)
    try:
        yield status
    except BaseException as error:
        if isinstance(error, ValueError) and not status.begun:
            _put_back(directory, before)
            raise
        ending = ending_of(error)
        status.end(ending.state, ending.error)
        raise
    status.end("done")


def _earlier(directory: Path) -> str | None:
    """Return the status file of the command before, None without one."""
    path = directory / STATUS
    return path.read_text(encoding="utf-8") if path.exists() else None


def _put_back(directory: Path, before: str | None) -> None:
    """Restore the status file of the command before; without one remove the file, and the directory if it is empty."""
    if before is not None:
        write_atomically(directory / STATUS, before)
        return
    (directory / STATUS).unlink(missing_ok=True)
    if not any(directory.iterdir()):
        directory.rmdir()
