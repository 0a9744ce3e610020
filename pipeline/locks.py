"""Locks of files, which the kernel releases even if the process that holds one is killed."""

import fcntl
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pipeline.stopping import Stopped, stopping

logger = logging.getLogger(__name__)


def try_lock(stream: IO[str], *, shared: bool = False) -> bool:
    """Take a lock on an open file and return True, or False if a lock of another process excludes it.

    shared: let other processes hold shared locks too; without it the lock is exclusive.
    """
    try:
        fcntl.flock(stream, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path, *, shared: bool = False) -> bool:
    """Return whether `try_lock` would fail, because of a lock that another process holds."""
    with _opened(path) as stream:
        return not try_lock(stream, shared=shared)


@contextmanager
def hold_lock(
    path: Path, title: str, waiting: Callable[[], None] = lambda: None, *, shared: bool = False
) -> Iterator[None]:
    """Hold a lock while the block runs.

    title, waiting: said and called when another process has the lock.
    shared: as in `try_lock`.
    Raises Stopped when this process is asked to stop meanwhile.
    """
    with _opened(path) as stream:
        if not try_lock(stream, shared=shared):
            logger.info("%s: another process is at work on it; waiting", title)
            waiting()
            while not try_lock(stream, shared=shared):
                if stopping.wait(0.2):
                    raise Stopped(title)
        yield


def _opened(path: Path) -> IO[str]:
    """Open a file that is locked, and create it where it is missing. A file of another user can be locked, too."""
    try:
        return path.open("a")
    except PermissionError:
        return path.open()
