"""Counts of the lines of test sets that share text with training rows.

Texts are compared as by the rule `held_out`: a line counts if a side is a whole sentence of a training row, or shares a
run of 8 words with one, on either side and in any language.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

import numpy as np
import pyarrow as pa

from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.cleaning.codepoints import Bools, Hashes, Ints, Texts
from pipeline.corpus.cleaning.held_out import HashSet, hashes_of_sentences

SHARED_WORDS = 8

Run = Callable[[Callable[[Path], Hashes], Sequence[Path]], list[Hashes]]


class Overlap(TypedDict):
    """Counts of the lines of a test set. source, reference, either: lines of which that side shares text."""

    lines: int
    source: int
    reference: int
    either: int


def count_overlap(tests: Mapping[str, Path], training: Sequence[Path], run: Run, scratch: Path) -> dict[str, Overlap]:
    """Count the lines of each test set that share text with any training row.

    tests, training: directories of rows, with the split `test` and the split `train`.
    run: calls a function with each directory of training rows, and returns the results.
    scratch: a directory that every process of `run` can read; the file in it is removed.
    """
    columns = (column for path in tests.values() for column in _columns(path, "test"))
    with TemporaryDirectory(dir=scratch) as directory:
        file = Path(directory, "test_hashes.npy")  # not sent to each process, because there may be millions of them
        np.save(file, _union(_hashes(column)[0] for column in columns))
        shared = HashSet(_union(run(partial(_shared, file), training)))
    return {name: _count(path, shared) for name, path in tests.items()}


def _shared(file: Path, directory: Path) -> Hashes:
    """Return those hashes of a file that training rows have."""
    test_hashes = HashSet(np.load(file))
    hashes = (_hashes(column)[0] for column in _columns(directory, "train"))
    return _union(of_column[test_hashes.contains(of_column)] for of_column in hashes)


def _union(parts: Iterable[Hashes]) -> Hashes:
    """Return every hash of the parts once, sorted."""
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *map(np.unique, parts)]))


def _count(directory: Path, shared: HashSet) -> Overlap:
    counts = Overlap(lines=0, source=0, reference=0, either=0)
    for batch in iter_bitext(directory, "test"):
        source, reference = (_shares(batch.column(side), shared) for side in ("src", "tgt"))
        counts["lines"] += batch.num_rows
        counts["source"] += int(source.sum())
        counts["reference"] += int(reference.sum())
        counts["either"] += int((source | reference).sum())
    return counts


def _shares(column: pa.StringArray, shared: HashSet) -> Bools:
    hashes, rows = _hashes(column)
    mask = np.zeros(len(column), dtype=bool)
    mask[rows[shared.contains(hashes)]] = True
    return mask


def _columns(directory: Path, split: str) -> Iterable[pa.StringArray]:
    for batch in iter_bitext(directory, split):
        yield from batch.columns


def _hashes(column: pa.StringArray) -> tuple[Hashes, Ints]:
    """Return the hashes of the whole texts and of their runs of words, and the number of the text of each."""
    texts = Texts.normalized(column)
    filled = np.flatnonzero(texts.lengths > 0)
    runs, rows = texts.folded.shingles(SHARED_WORDS)
    return np.concatenate((hashes_of_sentences(texts)[filled], runs)), np.concatenate((filled, rows))
