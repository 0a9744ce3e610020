"""Lines to translate, in shards of some rows, and files with the records of their translations.

The processes of a job append to `<shard>.rank-N.jsonl`. `gather` moves these records to `<shard>.jsonl`. A record is
{row, text, score, at_limit}, or {row, skipped} for a line that is not translated. at_limit says whether the limit of
length ended the translation; records of older versions lack it.
Free of pyarrow so that it loads fast.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.files import write_atomically

LINES = "lines.parquet"

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Rows `start` to `stop` of a file of lines, which are translated from one language into another.

    directory: directory of the lines and of the records.
    source: code of the language, which gates that choose by task and vocabularies with tags by side need.
    target: code of the language of translations.
    """

    directory: str
    source: str = ""
    target: str
    start: int
    stop: int

    @property
    def _stem(self) -> str:
        return f"{self.start:012d}-{self.stop:012d}"

    @property
    def _gathered(self) -> Path:
        return Path(self.directory, f"{self._stem}.jsonl")

    def part(self, rank: int) -> Path:
        """Return the path of the records that one process writes."""
        return Path(self.directory, f"{self._stem}.rank-{rank}.jsonl")

    def texts(self) -> list[str]:
        from pipeline.decode.job.line_file import read_lines

        return read_lines(Path(self.directory, LINES), self.start, self.stop)

    def gather(self) -> bool:
        """Collect the records of all processes, except incomplete lines. Returns True if every row has a record."""
        parts = sorted(Path(self.directory).glob(f"{self._stem}.rank-*.jsonl"))
        if parts:
            lines = [line for path in (self._gathered, *parts) for line in _complete_lines(path)]
            write_atomically(self._gathered, "".join(lines))
            for part in parts:
                part.unlink()
        return len(self.records()) == self.stop - self.start

    def records(self) -> dict[int, Record]:
        """Return the gathered records, by row."""
        records = (json.loads(line) for line in _complete_lines(self._gathered))
        return {record["row"]: record for record in records}


def make_shards(directory: Path, lines: Iterable[str], *, target: str, source: str = "", rows: int = 0) -> list[Shard]:
    """Write lines to a directory, unless they are there, and return shards of so many rows. rows: 0 makes one shard."""
    from pipeline.decode.job.line_file import num_lines, write_lines

    path = directory / LINES
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        write_lines(lines, path)
    total = num_lines(path)
    rows = rows or max(total, 1)
    return [
        Shard(directory=str(directory), source=source, target=target, start=start, stop=min(start + rows, total))
        for start in range(0, total, rows)
    ]


def _complete_lines(path: Path) -> list[str]:
    """Return the lines that end with a line feed. Other line ends, such as U+2028, are part of a text."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [line + "\n" for line in text[: text.rfind("\n") + 1].split("\n")[:-1]]
