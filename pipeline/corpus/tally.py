"""What became of the rows of a pair: counts by source and by rule, and examples."""

import gzip
from collections import Counter
from dataclasses import dataclass, field
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

_NUM_EXAMPLES = 3


@dataclass
class Tally:
    """What became of rows. read, kept: by source. changed: rows whose text normalisation changed. examples: the first
    rows by rule."""

    read: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[list[str]]] = field(default_factory=dict)
    changed: int = 0

    def remove(self, rule: str, rows: pa.RecordBatch, file: IO[bytes] | gzip.GzipFile | None) -> None:
        """Count rows that a rule removed, and write them down where they are to be kept."""
        if rows.num_rows == 0:
            return
        self.removed[rule] += rows.num_rows
        self.add_examples(rule, [[row["src"], row["tgt"]] for row in rows.slice(0, _NUM_EXAMPLES).to_pylist()])
        if file is not None:
            lines = pc.binary_join_element_wise(pa.scalar(rule), rows["src"], rows["tgt"], "\t")
            file.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())

    def add_examples(self, rule: str, rows: list[list[str]]) -> None:
        examples = self.examples.setdefault(rule, [])
        examples += rows[: _NUM_EXAMPLES - len(examples)]

    def add(self, other: "Tally") -> None:
        """Take in what became of later rows."""
        for mine, theirs in ((self.read, other.read), (self.kept, other.kept), (self.removed, other.removed)):
            mine.update(theirs)  # type: ignore[arg-type]
        self.changed += other.changed
        for rule, rows in other.examples.items():
            self.add_examples(rule, rows)

    def to_json(self) -> list[Any]:
        return [
            list(self.read.items()),
            list(self.kept.items()),
            list(self.removed.items()),
            self.examples,
            self.changed,
        ]

    @classmethod
    def from_json(cls, content: list[Any]) -> "Tally":
        read, kept, removed = (Counter(dict(items)) for items in content[:3])
        return cls(read, kept, removed, *content[3:])
