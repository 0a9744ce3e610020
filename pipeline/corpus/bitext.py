"""Cleaned rows of a pair as Arrow files: columns src and tgt."""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa

from pipeline.stage import stop_if_asked

if TYPE_CHECKING:
    import datasets

SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])
_BATCH_ROWS = 1000  # of the files; what is read at once


def read_bitext(directory: Path, split: str) -> "datasets.Dataset":
    """Rows (src, tgt) of a split, memory-mapped; what is touched stays in memory, so stream large splits instead."""
    import datasets  # a second of a process's life

    return datasets.Dataset.from_file(str(directory / f"{split}.arrow"))


def read_column(directory: Path, split: str, column: str) -> list[str]:
    """All texts of a side, `src` or `tgt`, of a small split."""
    return [text for batch in iter_bitext(directory, split) for text in batch.column(column).to_pylist()]


def iter_bitext(directory: Path, split: str, start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
    """Batches (src, tgt) of the rows from start to stop, read one after the other in little memory.

    What lies before them is not read, or the shards of a corpus would read its square.
    """
    with pa.OSFile(str(directory / f"{split}.arrow")) as file:
        schema = pa.ipc.read_schema(pa.ipc.read_message(file))
        at, place = 0, file.tell()
        while (header := _header(file)) is not None and (stop is None or at < stop):
            stop_if_asked(f"reading {directory}")
            end = at + header.rows
            if end > start:
                file.seek(place)
                batch = pa.ipc.read_record_batch(pa.ipc.read_message(file), schema)
                first = max(start - at, 0)
                last = batch.num_rows if stop is None else min(stop - at, batch.num_rows)
                yield batch.slice(first, last - first)
            at, place = end, header.end
            file.seek(place)


def num_rows(directory: Path, split: str) -> int:
    """Rows of a split, from the headers of its batches."""
    rows = 0
    with pa.OSFile(str(directory / f"{split}.arrow")) as file:
        pa.ipc.read_message(file)
        while (header := _header(file)) is not None:
            rows += header.rows
            file.seek(header.end)
    return rows


class _Header(NamedTuple):
    """Of a batch in an Arrow stream. end: position in the file behind it."""

    rows: int
    end: int


def _header(file: pa.NativeFile) -> _Header | None:
    """Header of the batch that begins here, none at the end of the stream.

    A message of the format (arrow.apache.org/docs/format/Columnar.html) is a mark, the size of its metadata, these, and
    a body. The metadata are the flatbuffer Message{version, header type, header, size of the body}, in which the header
    is the table RecordBatch{rows, ...}.
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
    """A field of 8 bytes of a flatbuffer's table, 0 where it is left out."""
    place = field_place(buffer, table, field)
    return 0 if place is None else int(struct.unpack_from("<q", buffer, place)[0])


def field_place(buffer: bytes, table: int, field: int) -> int | None:
    """Where a field of a flatbuffer's table lies, by the offsets before the table; 0 stands for none."""
    offsets = table - struct.unpack_from("<i", buffer, table)[0]
    (size,) = struct.unpack_from("<H", buffer, offsets)
    offset = struct.unpack_from("<H", buffer, offsets + 4 + 2 * field)[0] if 4 + 2 * field < size else 0
    return table + offset if offset else None


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
