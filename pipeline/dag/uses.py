"""Records of which artifacts each run uses, so that `make remove` frees no artifact that another run needs.

A store has one file for each run, `.runs/<hash>`: the path of the run's directory, then the artifacts, one a line. It
grows with every command of the run, and `make remove` deletes it.
"""

import hashlib
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pipeline.locks import hold_lock

logger = logging.getLogger(__name__)

LOCK, RECORDS = ".lock", ".runs"
UNRECORDED = ".unrecorded.lock"  # held by processes that take artifacts for no run, so that no record says which
ARTIFACT = re.compile(r"\w+/[0-9a-f]{16}")


def hold_store(root: Path, *, shared: bool) -> AbstractContextManager[None]:
    """Hold the lock of a store: shared to take artifacts from it, exclusive to remove artifacts.

    A store that does not exist yet, or that this user cannot write to, has no lock.
    """
    writable = root.is_dir() and os.access(root, os.W_OK)
    return hold_lock(root / LOCK, f"store {root}", shared=shared) if writable else nullcontext()


def record_path(root: Path, run: Path) -> Path:
    """Return the path of a run's record. run: the directory of its results."""
    return root / RECORDS / hashlib.sha256(os.fsencode(run.absolute())).hexdigest()[:16]


class UseRecord:
    """The record of one run. An error while writing does not end the run."""

    def __init__(self, root: Path, run: Path) -> None:
        self._run, self._path = run.absolute(), record_path(root, run)
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._warned = False

    def add(self, *artifacts: str) -> None:
        """Write down artifacts, as `stage/key`, that are not in the record yet."""
        with self._lock:
            if not self._known:
                self._known = {line for line in _lines(self._path) if ARTIFACT.fullmatch(line)}
            new = sorted({*artifacts} - self._known)
            self._known.update(new)
            try:
                if new:
                    self._append(new)
            except OSError as problem:
                if not self._warned:
                    logger.warning("warning: %s could not be written: %s", self._path, problem)
                self._warned = True

    def _append(self, artifacts: list[str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        head = [] if self._path.exists() else [str(self._run)]
        with self._path.open("a", encoding="utf-8", errors="surrogateescape") as stream:
            stream.write("".join(f"{line}\n" for line in [*head, *artifacts]))


def read_records(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yield the directory of every run that has a record, and the artifacts that it uses."""
    for path in sorted((root / RECORDS).glob("*")):
        head, *lines = [*_lines(path), ""]
        if head:
            yield Path(head), {line for line in lines if ARTIFACT.fullmatch(line)}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines() if path.exists() else []
