"""Parquet tables, whose columns, inside of structs too, hold the texts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.corpus.fetched import DOCUMENT
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers.fields import listed, named_fields
from pipeline.corpus.readers.lines import MAX_LINE_BYTES
from pipeline.corpus.readers.streams import FREE_BYTES, MAX_RATIO, is_compressed
from pipeline.corpus.tables import Table

_READ_ROWS = 200
_BUFFER_BYTES = 1 << 20
_DAMAGE = (pa.ArrowException, OSError, UnicodeError, OverflowError)


def read_parquet(paths: Sequence[Path], entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Table of text columns; `columns` names them, with dots into structs; null means no translation."""
    (path,) = paths
    if is_compressed(path.name):
        raise ValueError(f"{path}: Parquet is compressed inside; expand the file, and end its name in .parquet")
    try:
        with _open(path) as file:
            types = dict(_flattened(file.schema_arrow))
            groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
            _check_ratio(path, sum(group.total_byte_size for group in groups), path.stat().st_size)
    except _DAMAGE as error:
        raise ValueError(_damaged(path, error)) from error
    fields = named_fields(str(path), entry, renames, types)
    for field, column in fields.items():
        if field not in types:
            raise ValueError(f"{path}: no column {field!r}; it has {listed(types)}; correct columns")
        if not _is_text(types[field]) and not (column == DOCUMENT and pa.types.is_integer(types[field])):
            raise ValueError(f"{path}: column {field!r} is {types[field]} and no text; correct columns")

    return Table(columns=tuple(fields.values()), batches=_batches(path, fields))


def _batches(path: Path, fields: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    record, expanded, size = 1, 0, path.stat().st_size
    try:
        with _open(path) as file:
            for batch in file.iter_batches(_READ_ROWS, columns=list(fields), use_threads=False):
                texts = [_text(batch, field) for field in fields]
                for field, text in zip(fields, texts, strict=True):
                    _check_length(path, record, field, text)
                record, expanded = record + batch.num_rows, expanded + sum(text.nbytes for text in texts)
                _check_ratio(path, expanded, size)
                yield pa.RecordBatch.from_arrays(texts, names=list(fields.values()))
    except _DAMAGE as error:
        raise ValueError(_damaged(path, error, record)) from error


def _open(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, memory_map=False, pre_buffer=False, buffer_size=_BUFFER_BYTES)


def _flattened(fields: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted name and type of every column that is no struct."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _flattened(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field.type


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _text(batch: pa.RecordBatch, field: str) -> pa.Array:
    """Column of a batch as valid UTF-8."""
    if field in batch.schema.names:
        column = batch.column(field)
    else:
        top, *steps = field.split(".")
        column = pc.struct_field(batch.column(top), steps)
    text = column.cast(pa.string())
    text.validate(full=True)
    return text


def _check_length(path: Path, record: int, field: str, text: pa.Array) -> None:
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    if longest > MAX_LINE_BYTES:
        row = record + pc.index(pc.binary_length(text), longest).as_py()
        raise ValueError(f"{path}: record {row}: {field!r} is longer than {MAX_LINE_BYTES} bytes; cut it")


def _check_ratio(path: Path, expanded: int, size: int) -> None:
    if expanded > FREE_BYTES and expanded > MAX_RATIO * size:
        raise ValueError(
            f"{path}: more than {MAX_RATIO} times its size of {size} bytes when it is read, as a decompression bomb; "
            "if it is sound, write it without compression"
        )


def _damaged(path: Path, error: Exception, record: int | None = None) -> str:
    where = f"{path}: from record {record} on" if record else str(path)
    return f"{where}: no Parquet, or a damaged one ({str(error)[:200]}); fetch the file again"
