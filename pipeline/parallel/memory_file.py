"""Files in memory, by which the processes of a job on one machine find and tell each other things: no disk can be too
full for them, and they are gone with the last process."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class MemoryFile:
    """path: holds in this process, and in those that inherit the descriptors under their numbers."""

    path: Path
    descriptors: tuple[int, ...]


@contextmanager
def memory_file(elsewhere: Path) -> Iterator[MemoryFile]:
    """An empty file, for as long as the block runs. elsewhere: where it lies on systems other than Linux."""
    if sys.platform == "linux":
        descriptor = os.memfd_create(elsewhere.name)
        try:
            yield MemoryFile(path=Path(f"/proc/self/fd/{descriptor}"), descriptors=(descriptor,))
        finally:
            os.close(descriptor)
    else:
        elsewhere.unlink(missing_ok=True)
        try:
            yield MemoryFile(path=elsewhere.absolute(), descriptors=())
        finally:
            elsewhere.unlink(missing_ok=True)
