"""Cleaned rows of a pair as Arrow files: columns src and tgt."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import datasets
import pyarrow as pa

from pipeline.stage import stop_if_asked

SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])
_BATCH_ROWS = 1000  # of the files; what is read at once


def read_bitext(directory: Path, split: str) -> datasets.Dataset:
    """Rows (src, tgt) of a split, memory-mapped; what is touched stays in memory, so stream large splits instead."""
    return datasets.Dataset.from_file(str(directory / f"{split}.arrow"))


def iter_bitext(directory: Path, split: str, start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
    """Batches (src, tgt) of the rows from start to stop, read one after the other in little memory."""
    with pa.OSFile(str(directory / f"{split}.arrow")) as file, pa.ipc.open_stream(file) as reader:
        at = 0
        for batch in reader:
            stop_if_asked(f"reading {directory}")
            if stop is not None and at >= stop:
                return
            end = at + batch.num_rows
            if end > start:
                first = max(start - at, 0)
                last = batch.num_rows if stop is None else min(stop - at, batch.num_rows)
                yield batch.slice(first, last - first)
            at = end


def num_rows(directory: Path, split: str) -> int:
    """Rows of a split, from the headers of its batches."""
    return sum(batch.num_rows for batch in iter_bitext(directory, split))


class BitextWriter:
    """Writes rows to an Arrow file whose bytes depend on the rows alone, not on how they came in batches."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._writer = pa.ipc.new_stream(str(path), SCHEMA)
        self._held: list[pa.RecordBatch] = []
        self._num_held = 0

    def write(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            part = batch.slice(0, _BATCH_ROWS - self._num_held)
            batch = batch.slice(part.num_rows)
            self._held.append(part)
            self._num_held += part.num_rows
            self.rows += part.num_rows
            if self._num_held == _BATCH_ROWS:
                self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._num_held:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.write_batch(pa.concat_batches(self._held))
        self._held, self._num_held = [], 0


def write_bitext(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write all batches (src, tgt) and return how many rows they held."""
    with BitextWriter(path) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.rows
