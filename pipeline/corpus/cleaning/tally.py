"""Counts of the rows of a pair that were kept and removed, by source and by rule, with examples."""

import gzip
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

_NUM_EXAMPLES = 3


@dataclass
class Tally:
    """Counts of rows.

    read, kept: rows by number of the source.
    removed: rows by rule.
    examples: the first removed rows, by source and rule.
    changed: number of rows whose text normalisation changed.
    """

    read: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    examples: dict[tuple[int, str], list[list[str]]] = field(default_factory=dict)
    changed: int = 0

    def remove(self, rule: str, rows: pa.RecordBatch, source: int, file: IO[bytes] | gzip.GzipFile | None) -> None:
        """Count rows of a source that a rule removed, and write them to `file` if there is one."""
        if rows.num_rows == 0:
            return
        self.removed[rule] += rows.num_rows
        self._add_examples((source, rule), [[row["src"], row["tgt"]] for row in rows[:_NUM_EXAMPLES].to_pylist()])
        if file is not None:
            lines = pc.binary_join_element_wise(pa.scalar(rule), rows["src"], rows["tgt"], "\t")
            file.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())

    def examples_of(self, sources: Iterable[int]) -> dict[str, list[list[str]]]:
        """Return the first removed rows of some sources by rule, in the order of the sources."""
        examples: dict[str, list[list[str]]] = {}
        for number in sources:
            for (source, rule), rows in self.examples.items():
                if source == number:
                    examples[rule] = [*examples.get(rule, []), *rows][:_NUM_EXAMPLES]
        return examples

    def add(self, later: "Tally") -> None:
        """Add the counts and examples of later rows."""
        self.read.update(later.read)
        self.kept.update(later.kept)
        self.removed.update(later.removed)
        self.changed += later.changed
        for key, rows in later.examples.items():
            self._add_examples(key, rows)

    def to_json(self) -> list[Any]:
        return [
            list(self.read.items()),
            list(self.kept.items()),
            list(self.removed.items()),
            [[*key, rows] for key, rows in self.examples.items()],
            self.changed,
        ]

    @classmethod
    def from_json(cls, content: list[Any]) -> "Tally":
        read, kept, removed = (Counter(dict(items)) for items in content[:3])
        examples = {(source, rule): rows for source, rule, rows in content[3]}
        return cls(read, kept, removed, examples, content[4])

    def _add_examples(self, key: tuple[int, str], rows: list[list[str]]) -> None:
        examples = self.examples.setdefault(key, [])
        examples += rows[: _NUM_EXAMPLES - len(examples)]
