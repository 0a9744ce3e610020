"""Readers of tab-separated tables: of one pair, or multi-way with codes in the first line. Nothing is quoted."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpus.fetched import DOCUMENT
from pipeline.corpus.manifest import FileEntry, to_bcp47
from pipeline.corpus.readers.lines import Block, cut, read_blocks
from pipeline.corpus.tables import BATCH_ROWS, Table


def read_tsv(paths: Sequence[Path], entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Read a table without a header. `columns` names its fields; by default they are source, target and others."""
    (path,) = paths
    fields = {int(field): column for field, column in entry.columns.items()}
    if not fields:
        assert entry.pair is not None, "check_entry requires it"
        fields = {0: entry.pair.src, 1: entry.pair.tgt}

    def batches() -> Iterator[pa.RecordBatch]:
        for block in read_blocks(path):
            if block.first == 1:
                _check_no_header(path, block, fields, renames)
            cells = _Cells(block)
            short = cells.counts <= max(fields)
            if short.any():
                row = int(short.argmax())
                line = f"{path}: line {block.first + row}"
                if cells.counts[row] == 1:
                    raise ValueError(f"{line}: no tab in {_shown(block, row)}; put one tab between the fields")
                raise ValueError(
                    f"{line}: {cells.counts[row]} fields, but {fields[max(fields)]} is "
                    f"field {max(fields)}, from 0; add the missing tabs, or correct columns"
                )
            yield from _sliced([cells.column(field) for field in fields], list(fields.values()))

    return Table(columns=tuple(fields.values()), batches=batches())


def read_multiway_tsv(paths: Sequence[Path], entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Read a table whose first line holds codes, and `document`. An empty cell means no translation."""
    (path,) = paths
    blocks = read_blocks(path)
    first = next(blocks, None)
    heads = first.texts()[0].as_py().split("\t") if first else [""]
    if first and len(heads) == 1 and heads != [""]:
        raise ValueError(
            f"{path}: line 1: no tab in {_shown(first, 0)}; a table of many languages begins with a line of codes, "
            "with tabs between them"
        )
    fields = _header_fields(path, heads, entry.columns, renames)

    def batches() -> Iterator[pa.RecordBatch]:
        assert first is not None
        for block in _without_header(first, blocks):
            cells = _Cells(block)
            wrong = cells.counts != len(heads)
            if wrong.any():
                row = int(wrong.argmax())
                line = f"{path}: line {block.first + row}"
                if cells.counts[row] == 1:
                    raise ValueError(
                        f"{line}: no tab in {_shown(block, row)}, where the header has {len(heads)} cells; put tabs "
                        "between them (an empty cell means no translation)"
                    )
                raise ValueError(
                    f"{line}: {cells.counts[row]} cells where the header has {len(heads)}; "
                    "add or remove tabs (an empty cell means no translation)"
                )
            columns = [_null_if_empty(cells.column(field)) for field in fields]
            yield from _sliced(columns, list(fields.values()))

    return Table(columns=tuple(fields.values()), batches=batches())


class _Cells:
    """The positions of the fields of every line of a block."""

    def __init__(self, block: Block) -> None:
        self.data, self.ends, self.starts = block.data, block.ends, block.starts
        self.tabs = np.flatnonzero(np.frombuffer(block.data, np.uint8) == ord("\t"))
        self.first = np.searchsorted(self.tabs, self.starts)  # index of the first tab of each line
        self.counts = np.searchsorted(self.tabs, self.ends) - self.first + 1  # number of fields of each line

    def column(self, field: int) -> pa.StringArray:
        """Return the texts of one field, which every line must have."""
        starts = self.tabs[self.first + field - 1] + 1 if field else self.starts
        if not len(self.tabs):
            return cut(self.data, starts, self.ends)
        next_tabs = self.tabs[np.minimum(self.first + field, len(self.tabs) - 1)]
        return cut(self.data, starts, np.where(self.counts > field + 1, next_tabs, self.ends))


def _check_no_header(path: Path, block: Block, fields: Mapping[int, str], renames: Mapping[str, str]) -> None:
    """Raise ValueError if the first line holds the codes of the columns and not texts."""
    cells = dict(enumerate(block.texts()[0].as_py().split("\t")))
    codes = {field: code for field, code in fields.items() if code != DOCUMENT}
    if all(field in cells and _means(cells[field], code, renames) for field, code in codes.items()):
        raise ValueError(
            f"{path}: line 1 holds the codes {', '.join(codes.values())}, as a header, which a tsv has not; remove it, "
            "or use multiway_tsv, whose files are named as train.tsv"
        )


def _header_fields(
    path: Path, heads: list[str], columns: Mapping[str, str], renames: Mapping[str, str]
) -> dict[int, str]:
    """Return the names of the columns to read, by number."""
    if heads == [""]:
        raise ValueError(f"{path} is empty; its first line must hold the language codes, separated by tabs")
    fields: dict[int, str] = {}
    for number, head in enumerate(heads):
        if columns and head not in columns:
            continue
        try:
            name = columns.get(head) or (DOCUMENT if head == DOCUMENT else to_bcp47(head, renames))
        except ValueError as error:
            raise ValueError(
                f"{path}: line 1: {error}; a table of many languages begins with a line of codes"
            ) from error
        if name in fields.values():
            raise ValueError(f"{path}: line 1: {name} heads several columns; rename or remove one")
        fields[number] = name
    for head in columns:
        if head not in heads:
            raise ValueError(f"{path}: line 1: no column {head!r}; columns takes them from {', '.join(heads)}")
    codes = [name for name in fields.values() if name != DOCUMENT]
    if len(codes) < 2:
        raise ValueError(f"{path}: line 1 holds one code, {', '.join(codes)}; parallel text needs two")
    return fields


def _means(text: str, code: str, renames: Mapping[str, str]) -> bool:
    try:
        return to_bcp47(text, renames) == code
    except ValueError:
        return False  # a text, not a code


def _without_header(first: Block, blocks: Iterator[Block]) -> Iterator[Block]:
    rows = first.without_first()
    if rows is not None:
        yield rows
    yield from blocks


def _shown(block: Block, row: int) -> str:
    """Return the beginning of a line, for messages."""
    text: str = block.texts()[row].as_py()
    return repr(text if len(text) <= 40 else f"{text[:40]}…") if text else "an empty line"


def _null_if_empty(texts: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), pa.scalar(None, pa.string()), texts)


def _sliced(columns: list[Any], names: list[str]) -> Iterator[pa.RecordBatch]:
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)
