"""A reader of Parquet tables, with texts in columns, also within structs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
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
    """Read text columns as a table. `columns` names them, with dots for structs; null means no translation."""
    (path,) = paths
    types = parquet_fields(path)
    fields = named_fields(str(path), entry, renames, types)
    for field, column in fields.items():
        if field not in types:
            raise ValueError(f"{path}: no column {field!r}; it has {listed(types)}; correct columns")
        if not is_text(types[field]) and not (column == DOCUMENT and pa.types.is_integer(types[field])):
            raise ValueError(f"{path}: column {field!r} is {types[field]} and no text; correct columns")
    names = list(fields.values())
    batches = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in parquet_texts(path, list(fields)))
    return Table(columns=tuple(names), batches=batches)


def parquet_fields(path: Path) -> dict[str, Any]:
    """Return the Arrow type of every column that is no struct, by dotted name.

    Raises ValueError for a file that is no Parquet, and for one whose metadata say that it expands beyond MAX_RATIO.
    """
    if is_compressed(path.name):
        raise ValueError(f"{path}: Parquet is compressed inside; expand the file, and end its name in .parquet")
    try:
        with _open(path) as file:
            groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
            check_ratio(path, sum(group.total_byte_size for group in groups), path.stat().st_size)
            return dict(flattened(file.schema_arrow))
    except _DAMAGE as error:
        raise ValueError(_damaged(path, error)) from error


def parquet_texts(path: Path, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches of some columns as texts, under the names of the fields.

    The dictionary of a row group is checked first, because a long text in it is copied for every row that repeats it.
    Raises ValueError, with the records, for a text of more than MAX_LINE_BYTES, damage, and texts beyond MAX_RATIO.
    """
    record, expanded, size = 1, 0, path.stat().st_size
    try:
        with _open(path) as file:
            types = dict(flattened(file.schema_arrow))
        written = [field for field in fields if is_text(types[field])]
        with _open(path) as file, _open(path, written) as coded:
            for group in range(file.num_row_groups):
                _check_dictionaries(path, record, coded, group, written)
                for batch in file.iter_batches(_READ_ROWS, [group], list(fields), use_threads=False):
                    texts = [text_column(path, record, batch, field) for field in fields]
                    record, expanded = record + batch.num_rows, expanded + sum(text.nbytes for text in texts)
                    check_ratio(path, expanded, size)
                    yield pa.RecordBatch.from_arrays(texts, names=list(fields))
    except _DAMAGE as error:
        raise ValueError(_damaged(path, error, record)) from error


def flattened(fields: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted name and type of every column of a schema that is no struct."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from flattened(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field.type


def is_text(kind: Any) -> bool:
    """Return whether the values of an Arrow type are texts, directly or in a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def text_column(path: Path, record: int, batch: pa.RecordBatch, field: str) -> pa.Array:
    """Return a column of a batch as valid UTF-8. record: number of the first record of the batch.

    Raises ValueError for a text of more than MAX_LINE_BYTES, and ArrowException for values that are no Unicode text.
    """
    column = _column(batch, field)
    if pa.types.is_string_view(column.type):  # Arrow cannot compute lengths of this type
        column = column.cast(pa.string())
    if is_text(column.type):
        _check_length(path, record, field, column)
    text = column.cast(pa.string())
    text.validate(full=True)
    return text


def check_ratio(path: Path, expanded: int, size: int) -> None:
    """Raise ValueError if a file of `size` bytes has expanded to too many bytes."""
    if expanded > FREE_BYTES and expanded > MAX_RATIO * size:
        raise ValueError(
            f"{path}: more than {MAX_RATIO} times its size of {size} bytes when it is read, as a decompression bomb; "
            "if it is sound, write it without compression"
        )


def _open(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a file. dictionaries: columns that are read as dictionaries if they are encoded so."""
    return pq.ParquetFile(
        path, memory_map=False, pre_buffer=False, buffer_size=_BUFFER_BYTES, read_dictionary=list(dictionaries)
    )


def _column(batch: pa.RecordBatch, field: str) -> pa.Array:
    if field in batch.schema.names:
        return batch.column(field)
    top, *steps = field.split(".")
    return pc.struct_field(batch.column(top), steps)


def _check_dictionaries(path: Path, record: int, file: pq.ParquetFile, group: int, fields: Sequence[str]) -> None:
    """Raise ValueError for a long text in a dictionary of a row group. record: its first record."""
    last = record + file.metadata.row_group(group).num_rows - 1
    for batch in islice(file.iter_batches(1, [group], list(fields), use_threads=False), 1):
        for field in fields:
            longest = pc.max(pc.binary_length(_column(batch, field).dictionary)).as_py() or 0
            if longest > MAX_LINE_BYTES:
                records = f"{path}: records {record} to {last}"
                raise ValueError(f"{records}: a text of {field!r} is longer than {MAX_LINE_BYTES} bytes; cut it")


def _check_length(path: Path, record: int, field: str, column: pa.Array) -> None:
    if pa.types.is_dictionary(column.type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
    else:
        lengths = pc.binary_length(column)
    longest = pc.max(lengths).as_py() or 0
    if longest > MAX_LINE_BYTES:
        row = record + pc.index(lengths, longest).as_py()
        raise ValueError(f"{path}: record {row}: {field!r} is longer than {MAX_LINE_BYTES} bytes; cut it")


def _damaged(path: Path, error: Exception, record: int | None = None) -> str:
    where = f"{path}: from record {record} on" if record else str(path)
    return f"{where}: no Parquet, or a damaged one ({str(error)[:200]}); fetch the file again"
