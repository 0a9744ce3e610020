"""Search for rows that repeat an earlier row, in bounded memory.

Hashes of rows are written to partitions on disk, and one partition is sorted at a time.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from pipeline.corpus.cleaning.codepoints import Bools, Hashes, Ints

PARTITION_ROWS = 4_000_000  # rows that are sorted at once, about: 200 MB
_sorting = Lock()  # one partition at a time, because several pairs may be merged in parallel
_ENTRY = np.dtype([("key", np.uint64), ("row", np.int64)])


def num_partitions(rows: int) -> int:
    """Return the number of partitions for some rows."""
    return rows // PARTITION_ROWS + 1


class KeyWriter:
    """A writer of the hashes of rows to `keys-<partition>.bin` in a directory. Rows are numbered from 0."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self.rows = 0
        self._files: list[IO[bytes]] = [_path(directory, p).open("wb") for p in range(partitions)]

    def write(self, keys: Hashes) -> None:
        entries = np.empty(len(keys), dtype=_ENTRY)
        entries["key"], entries["row"] = keys, np.arange(self.rows, self.rows + len(keys))
        self.rows += len(keys)
        if len(self._files) == 1:
            self._files[0].write(entries.tobytes())
            return
        partition = keys % np.uint64(len(self._files))
        for index, file in enumerate(self._files):
            file.write(entries[partition == index].tobytes())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


def find_duplicates(shards: Sequence[tuple[Path, int]], partitions: int) -> Bools:
    """Return a mask of the rows that repeat an earlier one. shards: directory and rows of each `KeyWriter`."""
    starts = np.cumsum([0, *(rows for _, rows in shards)])
    repeated = np.zeros(starts[-1], dtype=bool)
    for partition in range(partitions):
        with _sorting:
            repeated[_repeats(shards, starts, partition)] = True
    return repeated


def _repeats(shards: Sequence[tuple[Path, int]], starts: Ints, partition: int) -> Ints:
    """Return the rows of one partition that repeat an earlier one."""
    parts: list[Any] = []
    for (directory, _), start in zip(shards, starts, strict=False):
        entries = np.fromfile(_path(directory, partition), dtype=_ENTRY)
        entries["row"] += start
        parts.append(entries)
    entries = np.concatenate(parts)
    order = np.argsort(entries["key"], kind="stable")  # rows of one hash stay in their order
    keys = entries["key"][order]
    rows: Ints = entries["row"][order[1:]][keys[1:] == keys[:-1]]
    return rows


def _path(directory: Path, partition: int) -> Path:
    return directory / f"keys-{partition}.bin"
