"""Rows of a corpus in columns: the tables that readers return, and the Parquet files that fetch writes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.corpus.fetched import DOCUMENT
from pipeline.stopping import stop_if_asked

__all__ = ["BATCH_ROWS", "DOCUMENT", "Table", "TableInfo", "group_rows", "read_batches", "small_batches", "write_table"]

BATCH_ROWS = 10_000  # most rows of a batch
_SMALL_ROWS, _SMALL_BYTES = 4000, 1 << 20  # rows that are cleaned at once, so that temporary arrays fit the cache
_GROUP_ROWS = 50_000  # most rows of a Parquet row group, the unit of reading and of sharding
_GROUP_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Table:
    """The rows of one entry of a manifest, which are read as the batches are taken.

    columns: BCP-47 codes, and `document` if it is known.
    batches: batches of at most BATCH_ROWS rows with string columns of these names. A null means that a language has no
        translation (in a sparse multi-way table), an empty text that a side is missing.
    """

    columns: tuple[str, ...]
    batches: Iterator[pa.RecordBatch]

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(column for column in self.columns if column != DOCUMENT)


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """The size of a written table. filled: by code, the number of rows whose text is not empty."""

    rows: int
    filled: dict[str, int]


def write_table(table: Table, path: Path) -> TableInfo:
    """Write a table as Parquet with zstd, in row groups of bounded size, with one group in memory at a time.

    The bytes of the file depend on the rows, not on the batches of the reader.
    """
    schema = pa.schema([(column, pa.string()) for column in table.columns])
    rows, filled = 0, dict.fromkeys(table.codes, 0)
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        for group in _groups(table.batches):
            stop_if_asked(f"writing {path}")
            rows += group.num_rows
            for code in table.codes:
                filled[code] += _count_filled(group[code])
            writer.write_table(group, row_group_size=group.num_rows)
    return TableInfo(rows=rows, filled=filled)


def read_batches(path: Path, columns: Sequence[str], groups: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches of some columns, with one row group in memory at a time. groups: those to read, by default all."""
    with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
        for group in range(file.num_row_groups) if groups is None else groups:
            stop_if_asked(f"reading {path}")
            for batch in file.read_row_group(group, columns=list(columns), use_threads=False).to_batches(BATCH_ROWS):
                yield batch.select(list(columns))


def group_rows(path: Path) -> list[int]:
    """Return the number of rows of every row group of a table."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def small_batches(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts that are small enough to clean at once."""
    start, ends = 0, _row_ends(batch)
    while start < batch.num_rows:
        stop = _fitting(ends, start, _SMALL_ROWS, _SMALL_BYTES)
        stop = max(stop, start + 1)
        yield batch.slice(start, stop - start)
        start = stop


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in groups of at most _GROUP_ROWS rows and _GROUP_BYTES bytes of text."""
    parts: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        start, ends = 0, _row_ends(batch)
        while start < batch.num_rows:
            stop = _fitting(ends, start, _GROUP_ROWS - rows, _GROUP_BYTES - size)
            stop = max(stop, start if rows else start + 1)
            parts.append(batch.slice(start, stop - start))
            rows, size = rows + stop - start, size + int(ends[stop] - ends[start])
            if stop < batch.num_rows or rows == _GROUP_ROWS:
                yield pa.Table.from_batches(parts).combine_chunks()
                parts, rows, size = [], 0, 0
            start = stop
    if parts:
        yield pa.Table.from_batches(parts).combine_chunks()


def _fitting(ends: Any, start: int, rows: int, size: int) -> int:
    """Return the end of the rows from `start` that fit into a number of rows and bytes."""
    fits = int(ends.searchsorted(ends[start] + size, side="right")) - 1
    return min(len(ends) - 1, start + rows, fits)


def _row_ends(batch: pa.RecordBatch) -> Any:
    """Return the bytes of text before each row, and of all rows: int64 [rows + 1]."""
    ends = np.zeros(batch.num_rows + 1, dtype=np.int64)
    for column in batch.columns:
        ends[1:] += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return ends.cumsum()


def _count_filled(column: Any) -> int:
    trimmed = pc.utf8_length(pc.utf8_trim_whitespace(column))
    return int(pc.sum(pc.greater(trimmed, 0)).as_py() or 0)
