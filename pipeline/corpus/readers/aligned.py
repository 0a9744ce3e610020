"""A reader of two text files, where each line of the second translates the same line of the first."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers.lines import read_blocks
from pipeline.corpus.tables import BATCH_ROWS, Table


def read_aligned(paths: Sequence[Path], entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Read two files as a table. Its batches raise ValueError if the files differ in length."""
    source, target = paths
    pair = entry.pair
    assert pair is not None, "check_entry requires it"

    def batches() -> Iterator[pa.RecordBatch]:
        sides = [_Side(source), _Side(target)]
        while True:
            ready = [side.available() for side in sides]
            rows = min(*ready, BATCH_ROWS)
            if rows == 0:
                break
            yield pa.RecordBatch.from_arrays([side.take(rows) for side in sides], names=[pair.src, pair.tgt])
        if max(ready):
            counts = [side.count() for side in sides]
            raise ValueError(
                f"{source} has {counts[0]} lines and {target} has {counts[1]}; aligned files must have the same number"
            )

    return Table(columns=(pair.src, pair.tgt), batches=batches())


class _Side:
    """The lines of one file, which are taken from its start in any number."""

    def __init__(self, path: Path) -> None:
        self.blocks = read_blocks(path)
        self.texts: pa.StringArray = pa.array([], pa.string())
        self.num_taken = 0

    def available(self) -> int:
        """Return the number of lines that can be taken now, 0 at the end of the file."""
        if not len(self.texts):
            block = next(self.blocks, None)
            if block is not None:
                self.texts = block.texts()
        return len(self.texts)

    def take(self, rows: int) -> pa.StringArray:
        texts, self.texts = self.texts[:rows], self.texts[rows:]
        self.num_taken += rows
        return texts

    def count(self) -> int:
        """Return the number of lines of the whole file, after reading it to its end."""
        return self.num_taken + len(self.texts) + sum(len(block.ends) for block in self.blocks)
