"""Tables of the rows of a hub's data sets, or of local copies of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpus.languages import MissingPairError
from pipeline.corpus.manifest import FileEntry, to_bcp47
from pipeline.corpus.readers.parquet import is_text
from pipeline.corpus.sources.copies import PARTS
from pipeline.corpus.sources.download import Patience
from pipeline.corpus.sources.hub import data_files, local_paths
from pipeline.corpus.sources.hub_files import KINDS, HubFile
from pipeline.corpus.tables import BATCH_ROWS, Table

_PIECE_ROWS = 1000  # few, because rows may be long
_BATCH_BYTES = 32 << 20
_PAIRS = "translation."  # field with the sides of a row by code on hubs


def open_dataset(
    entry: FileEntry, files: Path, cache: Path, renames: Mapping[str, str], *, patience: Patience | None = None
) -> Table:
    """Return the rows of a part of a data set: a copy below `files`, or the hub's files, which are kept below `cache`.

    `columns` of the entry have the BCP-47 code, or `document`, by field, with dots for structures (`translation.de`).
    Without them the codes of a field `translation` are taken. No program of a data set is run. With `streaming`, a file
    of the hub is deleted once it is read.
    Raises ValueError as `data_files` does, and for a part or field that does not exist. The batches of the table raise
    it for files that are damaged or beyond the limits of local readers.
    """
    data_set = data_files(entry, files, cache, patience=patience)
    opener = KINDS[_kind(entry, data_set.files)]
    opened = (opener(path) for path in local_paths(entry, data_set, files, cache, patience=patience))
    first = next(opened)
    empty = f"{_name(entry)}: empty, without a single row; choose another part"
    if not first.fields:
        raise ValueError(empty)
    fields = dict(entry.columns) or _codes(entry, first.fields, renames)
    _check(entry, first.fields, fields)
    columns = tuple(fields.values())
    for column in columns:
        if columns.count(column) > 1:
            raise ValueError(f"{_name(entry)}: several columns are {column}; keep one")
    pieces = _pieces(entry, chain([first], opened), fields)
    head = next(pieces, None)
    if head is None:
        raise ValueError(empty)
    return Table(columns=columns, batches=_batches(chain([head], pieces), columns))


def _kind(entry: FileEntry, files: tuple[str, ...]) -> str:
    """Return the common suffix of some files, without that of a compression."""
    kinds = {next((suffix for suffix in PurePosixPath(file).suffixes[::-1] if suffix in KINDS), "") for file in files}
    if len(kinds) > 1 or not kinds <= KINDS.keys():
        raise ValueError(f"{_name(entry)}: its files are not of one kind that can be read ({', '.join(files[:5])})")
    return kinds.pop()


def _batches(pieces: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows under the names of the columns, in batches as `Table` has them."""
    schema = pa.schema([(column, pa.string()) for column in columns])
    tables: list[Any] = []
    for piece in pieces:
        tables.append(pa.Table.from_arrays(piece.columns, schema=schema))
        if (
            sum(t.num_rows for t in tables) + _PIECE_ROWS > BATCH_ROWS
            or sum(t.nbytes for t in tables) > _BATCH_BYTES // 2
        ):
            yield from _cut(pa.concat_tables(tables).combine_chunks())
            tables = []
    if tables:
        yield from _cut(pa.concat_tables(tables).combine_chunks())


def _pieces(entry: FileEntry, opened: Iterable[HubFile], fields: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all files that `where` chooses, in small batches.

    Raises ValueError, with the number of sound rows, for a fault.
    """
    rows = 0
    try:
        for file in opened:
            _check(entry, file.fields, fields)
            for rows_read in file.read([*fields, *(field for field in entry.where if field not in fields)]):
                batch = _chosen(rows_read, entry.where).select(list(fields))
                for start in range(0, batch.num_rows, _PIECE_ROWS):
                    yield batch.slice(start, _PIECE_ROWS)
                rows += rows_read.num_rows
    except ValueError as error:
        raise ValueError(f"{_name(entry)}: cannot be read after row {rows}: {error}") from error


def _chosen(batch: pa.RecordBatch, where: Mapping[str, str]) -> pa.RecordBatch:
    """Return the rows of a batch whose fields have these values."""
    for field, value in where.items():
        batch = batch.filter(pc.fill_null(pc.equal(batch.column(field), value), False))
    return batch


def _cut(table: Any) -> Iterator[pa.RecordBatch]:
    """Yield the table in batches that are not large, unless a single row is."""
    if table.nbytes > _BATCH_BYTES and table.num_rows > 1:
        half = table.num_rows // 2
        yield from _cut(table.slice(0, half))
        yield from _cut(table.slice(half))
    else:
        yield from table.combine_chunks().to_batches()


def _check(entry: FileEntry, kinds: Mapping[str, Any], fields: Iterable[str]) -> None:
    """Raise ValueError for a field that does not exist, or is no text and in `fields`. kinds: Arrow type by field."""
    for field in fields:
        kind = kinds.get(field)
        texts = ", ".join(name for name, candidate in kinds.items() if is_text(candidate))
        if kind is None and any(name.startswith(f"{field}.") for name in kinds):
            kind = "struct"
        elif kind is None:
            raise MissingPairError(f"{_name(entry)}: no field {field!r} in columns; it has {texts}")
        elif is_text(kind) or (pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)) or pa.types.is_null(kind):
            continue
        raise ValueError(f"{_name(entry)}: field {field!r} is {kind}, no text; the texts are {texts}")
    for field in entry.where:
        if field not in kinds:
            raise ValueError(f"{_name(entry)}: no field {field!r} in where; it has {', '.join(kinds)}")


def _codes(entry: FileEntry, kinds: Mapping[str, Any], renames: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a data set whose field `translation` has a text for each language."""
    codes = [name.removeprefix(_PAIRS) for name in kinds if name.startswith(_PAIRS)]
    if not codes:
        texts = ", ".join(name for name, kind in kinds.items() if is_text(kind))
        raise ValueError(f"{_name(entry)}: which field is which language? name them in columns; it has {texts}")
    return {f"{_PAIRS}{code}": to_bcp47(code, renames) for code in codes}


def _name(entry: FileEntry) -> str:
    parts = (entry.dataset, entry.config, entry.part or PARTS[entry.split])
    return f"data set {' '.join(part for part in parts if part)}"
