"""Lines to translate, in shards of some rows, and the files in which the processes of a job leave what became of each.

A shard has `<shard>.rank-N.jsonl` of the attempt under way and `<shard>.jsonl` of those before. A record is
{row, text, score}, or {row, skipped} for a line that is not translated.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.corpus.tables import Table, group_rows, read_batches, write_table
from pipeline.files import sync, write_atomically

LINE = "line"
_BATCH_ROWS, _BATCH_CHARS = 5000, 4 << 20

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LineShard:
    """Rows `start` to `stop` of a file of lines. directory: of the records."""

    directory: Path
    start: int
    stop: int

    @property
    def _name(self) -> str:
        return f"{self.start:012d}-{self.stop:012d}"

    @property
    def _gathered(self) -> Path:
        return self.directory / f"{self._name}.jsonl"

    def part(self, rank: int) -> Path:
        """What one process of the attempt under way writes."""
        return self.directory / f"{self._name}.rank-{rank}.jsonl"

    def gather(self) -> bool:
        """Add what ended attempts left to the records, without lines that are half-written; whether all are there."""
        parts = sorted(self.directory.glob(f"{self._name}.rank-*.jsonl"))
        if parts:
            lines = [line for path in (self._gathered, *parts) for line in whole_lines(path)]
            write_atomically(self._gathered, "".join(lines))
            for part in parts:
                part.unlink()
        return len(self.records()) == self.stop - self.start

    def records(self) -> dict[int, Record]:
        """Those of ended attempts, by row."""
        found = (json.loads(line) for line in whole_lines(self._gathered))
        return {record["row"]: record for record in found}


def write_lines(lines: Iterable[str], path: Path) -> None:
    """Write lines for `read_lines`, in bounded memory; the file is there when it is whole."""
    temporary = path.with_name(path.name + ".tmp")
    write_table(Table(columns=(LINE,), batches=_batches(lines)), temporary)
    sync(temporary)
    temporary.rename(path)


def num_lines(path: Path) -> int:
    return sum(group_rows(path))


def read_lines(path: Path, start: int, stop: int) -> list[str]:
    """Lines of the rows from start to stop; reads the row groups that have them alone."""
    found: list[str] = []
    at = 0
    for group, rows in enumerate(group_rows(path)):
        if at < stop and start < at + rows:
            texts = [text for batch in read_batches(path, (LINE,), [group]) for text in batch.column(0).to_pylist()]
            found += texts[max(start - at, 0) : stop - at]
        at += rows
    return found


def _batches(lines: Iterable[str]) -> Iterator[pa.RecordBatch]:
    held: list[str] = []
    chars = 0
    for line in lines:
        held.append(line)
        chars += len(line)
        if len(held) == _BATCH_ROWS or chars > _BATCH_CHARS:
            yield pa.RecordBatch.from_arrays([pa.array(held, pa.string())], names=[LINE])
            held, chars = [], 0
    if held:
        yield pa.RecordBatch.from_arrays([pa.array(held, pa.string())], names=[LINE])


def whole_lines(path: Path) -> list[str]:
    """Lines of a file of records that end, by line feeds alone: a text may hold U+2028 and its like."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [line + "\n" for line in text[: text.rfind("\n") + 1].split("\n")[:-1]]
