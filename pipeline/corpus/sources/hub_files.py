"""Readers of the files of a hub's data set, with the same limits as the local readers.

A line, a record and a cell have at most 1 MiB, and no file expands beyond 200 times its size: readers/streams.py.
"""

import csv
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.corpus.bitext import field_place
from pipeline.corpus.readers.jsonl import field_names, field_value, json_records
from pipeline.corpus.readers.lines import MAX_LINE_BYTES, Block, read_blocks
from pipeline.corpus.readers.parquet import check_ratio, flattened, parquet_fields, parquet_texts, text_column

_READ_ROWS = 200
_BATCH_CHARS = 1 << 20
_DAMAGE = (pa.ArrowException, OSError, UnicodeError, OverflowError, struct.error)


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """An open file.

    fields: Arrow type of each column that is no structure, by dotted name.
    read: yields batches of some fields as texts, under their names. A null means that a text is missing. It raises
        ValueError, with file and place, for any fault.
    """

    fields: Mapping[str, Any]
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


def open_parquet(path: Path) -> HubFile:
    """Open a Parquet file. Raises ValueError if it is none."""
    return HubFile(fields=parquet_fields(path), read=partial(parquet_texts, path))


def open_json(path: Path) -> HubFile:
    """Open a file with one JSON object on a line. The fields are those of the first megabyte. Raises ValueError."""
    fields: dict[str, Any] = {}
    first = next(read_blocks(path), None)
    if first is not None and first.data.lstrip().startswith(b"["):
        raise ValueError(f"{path}: one JSON array; write one object a line, as by jq -c '.[]'")
    for _, record in _objects(path, first) if first else ():
        for name in field_names(record):
            if pa.types.is_null(fields.setdefault(name, pa.null())):  # the first value that is no null decides
                fields[name] = _kind(_value(record, name))
    fields = {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in fields.items()}

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for block in read_blocks(path):
            records = list(_objects(path, block))
            flags = {name for name in names if pa.types.is_boolean(fields.get(name, pa.null()))}
            columns = [[_value(record, name) for _, record in records] for name in names]
            try:
                batch = _batch(path, block.first, columns, names)
            except TypeError:  # some values are no texts
                columns = [
                    [_cell(path, number, record, name, name in flags) for number, record in records] for name in names
                ]
                batch = _batch(path, block.first, columns, names)
            yield batch

    return HubFile(fields=fields, read=read)


def open_csv(path: Path, delimiter: str) -> HubFile:
    """Open a CSV file. The first record has the names of the fields. An empty cell is null."""
    first, header = next((record for record in _records(path, delimiter) if record[1]), (0, []))

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        places = [header.index(name) for name in names]
        columns: list[list[str | None]] = [[] for _ in names]
        number = size = 0
        for number, cells in _records(path, delimiter):
            if number <= first or not cells:
                continue
            if len(cells) > len(header):
                raise ValueError(
                    f"{path}: record {number}: {len(cells)} cells where the first has {len(header)}; correct the quotes"
                )
            size += len(cells) + sum(map(len, cells))
            for place, column in zip(places, columns, strict=True):
                column.append(cells[place] or None if place < len(cells) else None)
            if size > _BATCH_CHARS:
                yield _batch(path, number, columns, names)
                columns, size = [[] for _ in names], 0
        yield _batch(path, number, columns, names)

    return HubFile(fields=dict.fromkeys(header, pa.string()), read=read)


def open_text(path: Path) -> HubFile:
    """Open a text file, whose lines are a column called text."""

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for block in read_blocks(path):
            yield pa.RecordBatch.from_arrays([block.texts() for _ in names], names=list(names))

    return HubFile(fields={"text": pa.string()}, read=read)


def open_arrow(path: Path) -> HubFile:
    """Open an Arrow file or stream. Raises ValueError if it is compressed, because its expanded size is unknown."""
    try:
        with _arrow(path) as (schema, _):
            fields = {name: kind for name, kind in flattened(schema) if not pa.types.is_string_view(kind)}
    except _DAMAGE as error:
        raise ValueError(_damaged(path, error)) from error

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        record, expanded, size = 1, 0, path.stat().st_size
        try:
            with _arrow(path) as (_, batches):
                for whole in batches:
                    whole.validate(full=True)
                    for start in range(0, whole.num_rows, _READ_ROWS):
                        batch = whole.slice(start, _READ_ROWS)
                        texts = [text_column(path, record, batch, name) for name in names]
                        record, expanded = record + batch.num_rows, expanded + sum(text.nbytes for text in texts)
                        check_ratio(path, expanded, size)
                        yield pa.RecordBatch.from_arrays(texts, names=list(names))
        except _DAMAGE as error:
            raise ValueError(_damaged(path, error)) from error

    return HubFile(fields=fields, read=read)


KINDS: Mapping[str, Callable[[Path], HubFile]] = {
    ".parquet": open_parquet,
    ".arrow": open_arrow,
    ".json": open_json,
    ".jsonl": open_json,
    ".csv": partial(open_csv, delimiter=","),
    ".tsv": partial(open_csv, delimiter="\t"),
    ".txt": open_text,
}


def _objects(path: Path, block: Block) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, record in json_records(path, block):
        if not isinstance(record, dict):
            raise ValueError(f"{path}: line {number}: no JSON object; write one object a line")
        yield number, record


def _kind(value: Any) -> Any:
    """Return the Arrow type of a value of JSON."""
    if value is None:
        return pa.null()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, bool):
        return pa.bool_()
    return pa.list_(pa.null()) if isinstance(value, list | dict) else pa.int64()


def _value(record: dict[str, Any], name: str) -> Any:
    if name in record:
        return record[name]
    try:
        return field_value(record, name, name.split("."))
    except (KeyError, TypeError):
        return None  # this record lacks the field


def _cell(path: Path, number: int, record: dict[str, Any], name: str, is_flag: bool) -> str | None:
    """Return the text of a field, None without one. Whole numbers may name a document. is_flag: it is true or false."""
    value = _value(record, name)
    if value is None or isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    if is_flag and isinstance(value, bool):
        return str(value).lower()
    kind = type(value).__name__
    raise ValueError(f"{path}: line {number}: field {name!r} is {kind} and no text; quote it, or correct columns")


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number, from 1, and cells of every record. Quoted cells may hold line ends."""
    csv.field_size_limit(MAX_LINE_BYTES)
    number = size = 0

    def lines() -> Iterator[str]:
        nonlocal size
        for block in read_blocks(path):
            for line in block.data.decode().split("\n")[:-1]:
                size += len(line) + 1
                if size > MAX_LINE_BYTES + 1:
                    raise ValueError(f"{path}: record {number + 1}: longer than {MAX_LINE_BYTES} characters; cut it")
                yield line + "\n"

    try:
        for cells in csv.reader(lines(), delimiter=delimiter):
            number, size = number + 1, 0
            yield number, cells
    except csv.Error as error:
        raise ValueError(f"{path}: record {number + 1}: {error}; correct it") from error


def _batch(path: Path, number: int, columns: Sequence[list[str | None]], names: Sequence[str]) -> pa.RecordBatch:
    """Return texts as a batch. number: a record near them, for messages."""
    try:
        return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], names=list(names))
    except UnicodeEncodeError as error:
        raise ValueError(f"{path}: near record {number}: no Unicode text ({error.reason}); correct it") from error


@contextmanager
def _arrow(path: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Open a file, and give its schema and its batches, which are read as they are taken."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"  # otherwise it is a stream
    with pa.memory_map(str(path)) as source:
        source.seek(8 if is_file else 0)
        for message in pa.ipc.MessageReader.open_stream(source):
            if _is_compressed(message):
                raise ValueError(f"{path}: compressed inside; write it without compression, or as Parquet")
        source.seek(0)
        if is_file:
            reader = pa.ipc.open_file(source)
            yield reader.schema, (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            stream = pa.ipc.open_stream(source)
            yield stream.schema, iter(stream)


def _is_compressed(message: pa.ipc.Message) -> bool:
    """Return whether an Arrow message names a compression of its body.

    The message is Message{.., .., header}; the header is RecordBatch{rows, nodes, buffers, compression} or
    DictionaryBatch{id, RecordBatch}.
    """
    steps = {"record batch": (2,), "dictionary": (2, 1)}.get(message.type)
    if steps is None:
        return False
    metadata = message.metadata.to_pybytes()
    table = struct.unpack_from("<I", metadata)[0]
    for field in steps:
        position = field_place(metadata, table, field)
        if position is None:
            return False
        table = position + struct.unpack_from("<I", metadata, position)[0]
    return field_place(metadata, table, 3) is not None


def _damaged(path: Path, error: Exception) -> str:
    return f"{path}: no Arrow, or a damaged file ({str(error)[:200]}); fetch it again"
