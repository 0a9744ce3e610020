"""Files in memory through which the processes of a job on one machine exchange messages.

They work when the disk is full, and they disappear with the last process.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class MemoryFile:
    """A file in memory. Its path is valid in this process and in processes that inherit its descriptors."""

    path: Path
    descriptors: tuple[int, ...]


@contextmanager
def memory_file(fallback: Path) -> Iterator[MemoryFile]:
    """Provide an empty file while the block runs. fallback: its path on systems other than Linux."""
    if sys.platform == "linux":
        descriptor = os.memfd_create(fallback.name)
        try:
            yield MemoryFile(path=Path(f"/proc/self/fd/{descriptor}"), descriptors=(descriptor,))
        finally:
            os.close(descriptor)
    else:
        fallback.unlink(missing_ok=True)
        try:
            yield MemoryFile(path=fallback.absolute(), descriptors=())
        finally:
            fallback.unlink(missing_ok=True)
