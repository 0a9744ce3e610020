"""Rows of hub data sets and of local copies of them, read by `datasets` in columns."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.compute as pc
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # its client, whichever it is

from pipeline.corpus.manifest import FileEntry, to_bcp47
from pipeline.corpus.sources.copies import PARTS
from pipeline.corpus.sources.download import Patience
from pipeline.corpus.sources.hub import data_files
from pipeline.corpus.tables import BATCH_ROWS, Table

_READ_ROWS = 1000  # at a time; rows may be long
_BATCH_BYTES = 32 << 20
_READERS: Mapping[str, tuple[str, dict[str, str]]] = {
    ".parquet": ("parquet", {}),
    ".arrow": ("arrow", {}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".txt": ("text", {}),
}
_RETRIES = 4  # of a hub that is streamed from; each has some of its own below it
_FAULTS = (pa.ArrowException, datasets.exceptions.DatasetGenerationError, OSError, ValueError, RuntimeError)
_PAIRS = "translation"  # field in which hubs keep the sides of a row by code


def open_dataset(
    entry: FileEntry, files: Path, cache: Path, renames: Mapping[str, str], *, patience: Patience | None = None
) -> Table:
    """Rows of a part of a data set: of the copy below `files`, or of the hub's files, which are kept below `cache`.

    columns of the entry: field, with dots into structures (`translation.de`) -> BCP-47 code or `document`; where there
    are none, the codes of a field `translation`. Files are read from front to back, nothing is copied to be read, and
    no program of a data set is run. `streaming` reads from the hub without keeping a copy.
    Raises ValueError as `data_files` does, and for a part or field that is not there.
    """
    found = data_files(entry, files, cache, patience=patience).files
    data = _load(entry, found, cache)
    batches = _tables(entry, data)
    first = next(batches, None)
    if first is None:
        raise ValueError(f"{_name(entry)}: empty, without a single row; choose another part")
    fields = dict(entry.columns) or _codes(entry, first.schema, renames)
    for field in fields:
        _take(entry, first, field)
    columns = tuple(fields.values())
    for column in columns:
        if columns.count(column) > 1:
            raise ValueError(f"{_name(entry)}: several columns are {column}; keep one")
    return Table(columns=columns, batches=_batches(entry, first, batches, fields))


def _load(entry: FileEntry, files: tuple[str, ...], cache: Path) -> Any:
    kinds = {
        next((suffix for suffix in PurePosixPath(file).suffixes[::-1] if suffix in _READERS), "") for file in files
    }
    if len(kinds) > 1 or not kinds <= _READERS.keys():
        raise ValueError(f"{_name(entry)}: its files are not of one kind that can be read ({', '.join(files[:5])})")
    reader, options = _READERS[kinds.pop()]
    # counting how often a format is read would be a request to the network for every file on disk
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    datasets.config.STREAMING_READ_MAX_RETRIES = datasets.config.STREAMING_OPEN_MAX_RETRIES = _RETRIES
    part = datasets.Split.TRAIN
    try:
        return datasets.load_dataset(
            reader,
            data_files={part: list(files)},
            split=part,
            streaming=True,
            cache_dir=str(cache / "datasets"),
            **options,
        )
    except (*_FAULTS, httpx.HTTPError) as error:
        raise ValueError(_damage(entry, error, 0)) from error


def _tables(entry: FileEntry, data: Any) -> Iterator[Any]:
    """Arrow tables of a data set. Raises ValueError where its files cannot be read."""
    rows = 0
    try:
        for table in data.with_format("arrow").iter(batch_size=_READ_ROWS):
            yield table
            rows += table.num_rows
    except (*_FAULTS, httpx.HTTPError) as error:
        raise ValueError(_damage(entry, error, rows)) from error


def _damage(entry: FileEntry, error: Exception, rows: int) -> str:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    remedy = "try again, or take streaming out, to keep a copy" if entry.streaming else "fetch it again"
    return f"{_name(entry)}: cannot be read after row {rows} ({reason}); {remedy}"


def _batches(entry: FileEntry, first: Any, rest: Iterator[Any], fields: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([(column, pa.string()) for column in fields.values()])
    held: list[Any] = []
    for table in _chain(first, rest):
        held.append(pa.Table.from_arrays([_take(entry, table, field) for field in fields], schema=schema))
        if sum(t.num_rows for t in held) + _READ_ROWS > BATCH_ROWS or sum(t.nbytes for t in held) > _BATCH_BYTES // 2:
            yield from _cut(pa.concat_tables(held).combine_chunks())
            held = []
    if held:
        yield from _cut(pa.concat_tables(held).combine_chunks())


def _cut(table: Any) -> Iterator[pa.RecordBatch]:
    """Batches of a table, none of which is large, unless a row is."""
    if table.nbytes > _BATCH_BYTES and table.num_rows > 1:
        half = table.num_rows // 2
        yield from _cut(table.slice(0, half))
        yield from _cut(table.slice(half))
    else:
        yield from table.combine_chunks().to_batches()


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _take(entry: FileEntry, table: Any, field: str) -> Any:
    """Column of texts of a field. Raises ValueError with the fields that there are."""
    name, *path = field.split(".")
    if field in table.column_names:
        name, path = field, []
    try:
        column = table.column(name)
        for step in path:
            column = pc.struct_field(column, step)
    except (KeyError, pa.ArrowException) as error:
        there = ", ".join(_leaves(table.schema))
        raise ValueError(f"{_name(entry)}: no field {field!r} in columns; it has {there}") from error
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        there = ", ".join(_leaves(table.schema))
        raise ValueError(f"{_name(entry)}: field {field!r} is {column.type}, no text; the texts are {there}")
    return column.cast(pa.string())


def _codes(entry: FileEntry, schema: Any, renames: Mapping[str, str]) -> dict[str, str]:
    """Columns of a data set whose field `translation` has a text for each language."""
    if _PAIRS not in schema.names or not pa.types.is_struct(schema.field(_PAIRS).type):
        there = ", ".join(_leaves(schema))
        raise ValueError(f"{_name(entry)}: which field is which language? name them in columns; it has {there}")
    kind = schema.field(_PAIRS).type
    return {f"{_PAIRS}.{kind.field(i).name}": to_bcp47(kind.field(i).name, renames) for i in range(kind.num_fields)}


def _leaves(schema: Any) -> list[str]:
    """Names of the fields that hold texts."""
    names = []
    for field in schema:
        if pa.types.is_struct(field.type):
            names += [f"{field.name}.{field.type.field(i).name}" for i in range(field.type.num_fields)]
        elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            names.append(field.name)
    return names


def _name(entry: FileEntry) -> str:
    parts = (entry.dataset, entry.config, entry.part or PARTS[entry.split])
    return f"data set {' '.join(part for part in parts if part)}"
