"""Cleaned rows of a pair as Arrow files: columns src and tgt."""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from pipeline.stopping import stop_if_asked

if TYPE_CHECKING:
    import datasets

SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])
_BATCH_ROWS = 1000  # rows of a batch in a file, which is read at once


def read_bitext(directory: Path, split: str) -> "datasets.Dataset":
    """Return the rows (src, tgt) of a split, memory-mapped. Pages stay in memory once read: use it for small splits."""
    import datasets  # here, because the import takes a second

    return datasets.Dataset.from_file(str(directory / f"{split}.arrow"))


def read_column(directory: Path, split: str, column: str) -> list[str]:
    """Return all texts of one side, `src` or `tgt`, of a small split."""
    return [text for batch in iter_bitext(directory, split) for text in batch.column(column).to_pylist()]


def iter_bitext(directory: Path, split: str, start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches (src, tgt) of the rows from start to stop, with one batch in memory at a time.

    Earlier rows are skipped without reading them, so that all shards of a corpus together read it once.
    """
    with pa.OSFile(str(directory / f"{split}.arrow")) as file:
        schema = pa.ipc.read_schema(pa.ipc.read_message(file))
        row, position = 0, file.tell()
        while (header := _header(file)) is not None and (stop is None or row < stop):
            stop_if_asked(f"reading {directory}")
            end = row + header.rows
            if end > start:
                file.seek(position)
                batch = pa.ipc.read_record_batch(pa.ipc.read_message(file), schema)
                first = max(start - row, 0)
                last = batch.num_rows if stop is None else min(stop - row, batch.num_rows)
                yield batch.slice(first, last - first)
            row, position = end, header.end
            file.seek(position)


def num_rows(directory: Path, split: str) -> int:
    """Return the number of rows of a split, from the headers of its batches."""
    rows = 0
    with pa.OSFile(str(directory / f"{split}.arrow")) as file:
        pa.ipc.read_message(file)
        while (header := _header(file)) is not None:
            rows += header.rows
            file.seek(header.end)
    return rows


class _Header(NamedTuple):
    """The header of a batch in an Arrow stream. end: position in the file after the batch."""

    rows: int
    end: int


def _header(file: pa.NativeFile) -> _Header | None:
    """Return the header of the batch that begins here, None at the end of the stream.

    A message of the format (arrow.apache.org/docs/format/Columnar.html) has four parts: a mark, the size of the
    metadata, the metadata, and a body. The metadata are the flatbuffer Message{version, header type, header, size of
    the body}; its header is the table RecordBatch{rows, ...}.
    """
    prefix = file.read(8)
    if len(prefix) < 8:
        return None
    mark, size = struct.unpack("<II", prefix)
    assert mark == 0xFFFFFFFF, "not the beginning of a message"
    if size == 0:
        return None
    metadata = file.read(size)
    message = struct.unpack_from("<I", metadata)[0]
    header = field_place(metadata, message, 2)
    assert header is not None, "a message without a header"
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    return _Header(rows=_number(metadata, batch, 0), end=file.tell() + _number(metadata, message, 3))


def _number(buffer: bytes, table: int, field: int) -> int:
    """Return a field of 8 bytes of a flatbuffer's table, 0 if it is left out."""
    position = field_place(buffer, table, field)
    return 0 if position is None else int(struct.unpack_from("<q", buffer, position)[0])


def field_place(buffer: bytes, table: int, field: int) -> int | None:
    """Return the position of a field of a flatbuffer's table, from the offsets before the table. None: left out."""
    offsets = table - struct.unpack_from("<i", buffer, table)[0]
    (size,) = struct.unpack_from("<H", buffer, offsets)
    offset = struct.unpack_from("<H", buffer, offsets + 4 + 2 * field)[0] if 4 + 2 * field < size else 0
    return table + offset if offset else None


class BitextWriter:
    """A writer of rows to an Arrow file. The bytes depend on the rows, not on the batches in which they are given."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._writer = pa.ipc.new_stream(str(path), SCHEMA)
        self._waiting: list[pa.RecordBatch] = []
        self._num_waiting = 0

    def write(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            part = batch.slice(0, _BATCH_ROWS - self._num_waiting)
            batch = batch.slice(part.num_rows)
            self._waiting.append(part)
            self._num_waiting += part.num_rows
            self.rows += part.num_rows
            if self._num_waiting == _BATCH_ROWS:
                self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._num_waiting:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.write_batch(pa.concat_batches(self._waiting))
        self._waiting, self._num_waiting = [], 0


def write_bitext(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write all batches (src, tgt) and return their number of rows."""
    with BitextWriter(path) as writer:
        for batch in batches:
            writer.write(batch)
    return writer.rows
