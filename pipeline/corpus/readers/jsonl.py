"""A reader of JSON lines: one object on a line, with texts in its fields, which may be nested."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.corpus.fetched import DOCUMENT
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers.fields import listed, named_fields
from pipeline.corpus.readers.lines import Block, read_blocks
from pipeline.corpus.tables import BATCH_ROWS, Table

_DEPTH = 8  # levels of nested fields that are listed


def read_jsonl(paths: Sequence[Path], entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Read JSON objects as a table. `columns` names fields, with dots for nested ones; null means no translation.

    Lines of white space are skipped. A document may be named by a text or a number.
    """
    (path,) = paths
    blocks = read_blocks(path)
    first = next(blocks, None)
    if first is None:
        raise ValueError(f"{path}: line 1: empty, without a single row; add rows or take it out of the corpus")
    head = next(json_records(path, first), None)
    if head is None:
        raise ValueError(f"{path}: line {first.first}: blank, as are those after it; add rows, or remove these lines")
    number, record = head
    fields = named_fields(f"{path}: line {number}", entry, renames, list(field_names(record)))

    def batches() -> Iterator[pa.RecordBatch]:
        for block in chain([first], blocks):
            batch = _batch(path, block, fields)
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)

    return Table(columns=tuple(fields.values()), batches=batches())


def _batch(path: Path, block: Block, fields: Mapping[str, str]) -> pa.RecordBatch:
    try:
        records = [json.loads(line) for line in block.data.decode().split("\n") if line and not line.isspace()]
        arrays = [_column(records, field, column) for field, column in fields.items()]
    except (ValueError, TypeError, KeyError, RecursionError, pa.ArrowException):
        _check_lines(path, block, fields)
        raise
    return pa.RecordBatch.from_arrays(arrays, names=list(fields.values()))


def _column(records: Sequence[Any], field: str, column: str) -> pa.StringArray:
    steps = field.split(".")
    if len(steps) == 1:
        values = [record[field] for record in records]
    else:
        values = [field_value(record, field, steps) for record in records]
    if column == DOCUMENT:
        values = [str(value) if type(value) is int else value for value in values]
    return pa.array(values, pa.string())


def _check_lines(path: Path, block: Block, fields: Mapping[str, str]) -> None:
    """Raise ValueError for the first line with a fault."""
    for number, record in json_records(path, block):
        for field, column in fields.items():
            try:
                value = field_value(record, field, field.split("."))
            except (KeyError, TypeError) as error:
                raise ValueError(_missing(path, number, field, record)) from error
            if isinstance(value, str):
                try:
                    value.encode()
                except UnicodeEncodeError as error:
                    raise ValueError(
                        f"{path}: line {number}: field {field!r} is no Unicode text ({error.reason}); correct it"
                    ) from error
            elif value is not None and not (column == DOCUMENT and type(value) is int):
                kind = type(value).__name__
                raise ValueError(
                    f"{path}: line {number}: field {field!r} is {kind} and no text; quote it, or correct columns"
                )


def json_records(path: Path, block: Block) -> Iterator[tuple[int, Any]]:
    """Yield number and content of every line that is not blank. Raises ValueError for malformed JSON."""
    for number, line in enumerate(block.data.decode().split("\n"), start=block.first):
        if line and not line.isspace():
            try:
                yield number, json.loads(line)
            except RecursionError as error:
                raise ValueError(f"{path}: line {number}: JSON nested too deep; flatten it") from error
            except ValueError as error:  # malformed, or a number with more digits than Python reads
                raise ValueError(f"{path}: line {number}: malformed JSON ({error}); correct the line") from error


def field_value(record: Any, field: str, steps: Sequence[str]) -> Any:
    """Return a field's value, by its name or the steps of its dotted name. Raises KeyError or TypeError if missing."""
    if len(steps) == 1 or field in record:  # a name may hold a dot
        return record[field]
    for step in steps:
        record = record[step]
    return record


def _missing(path: Path, number: int, field: str, record: Any) -> str:
    content = f"the fields {listed(list(field_names(record)))}" if isinstance(record, dict) else "no object"
    return f"{path}: line {number}: no field {field!r}; the line holds {content}; add it, or correct columns"


def field_names(record: Any, prefix: str = "", depth: int = _DEPTH) -> Iterator[str]:
    """Yield the dotted names of the fields of a record, down to some depth."""
    for name, value in record.items() if isinstance(record, dict) else ():
        if isinstance(value, dict) and depth:
            yield from field_names(value, f"{prefix}{name}.", depth - 1)
        else:
            yield prefix + name
