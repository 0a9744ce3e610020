"""Parquet files with one line of text in each row."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from pipeline.corpus.tables import Table, group_rows, read_batches, write_table
from pipeline.files import sync

LINE = "line"
_BATCH_ROWS, _BATCH_CHARS = 5000, 4 << 20


def write_lines(lines: Iterable[str], path: Path) -> None:
    """Write lines for `read_lines`, in bounded memory. The file appears when it is complete."""
    temporary = path.with_name(path.name + ".tmp")
    write_table(Table(columns=(LINE,), batches=_batches(lines)), temporary)
    sync(temporary)
    temporary.rename(path)


def num_lines(path: Path) -> int:
    return sum(group_rows(path))


def read_lines(path: Path, start: int, stop: int) -> list[str]:
    """Return the lines of the rows from start to stop. Only the row groups that have them are read."""
    lines: list[str] = []
    first = 0
    for group, rows in enumerate(group_rows(path)):
        if first < stop and start < first + rows:
            texts = [text for batch in read_batches(path, (LINE,), [group]) for text in batch.column(0).to_pylist()]
            lines += texts[max(start - first, 0) : stop - first]
        first += rows
    return lines


def _batches(lines: Iterable[str]) -> Iterator[pa.RecordBatch]:
    rows: list[str] = []
    chars = 0
    for line in lines:
        rows.append(line)
        chars += len(line)
        if len(rows) == _BATCH_ROWS or chars > _BATCH_CHARS:
            yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=[LINE])
            rows, chars = [], 0
    if rows:
        yield pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], names=[LINE])
