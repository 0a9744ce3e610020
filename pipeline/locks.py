"""Locks of files, which the kernel releases even if the process that holds one is killed."""

import fcntl
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pipeline.stopping import Stopped, stopping

logger = logging.getLogger(__name__)


def try_lock(stream: IO[str]) -> bool:
    """Take an exclusive lock on an open file and return True, or False if another process has it."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_lock(path: Path, title: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock while the block runs.

    title, waiting: said and called when another process has the lock.
    Raises Stopped when this process is asked to stop meanwhile.
    """
    with path.open("w") as stream:
        if not try_lock(stream):
            logger.info("%s: another process is at work on it; waiting", title)
            waiting()
            while not try_lock(stream):
                if stopping.wait(0.2):
                    raise Stopped(title)
        yield
