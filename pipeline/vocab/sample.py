"""The sample of training rows, by temperature, on which vocabularies are trained."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.languages import LangPair

LONGEST_TEXT = 1 << 18  # characters; in UTF-8 at most the bytes of SentencePiece's max_sentence_length
_READ_ROWS = 1000

_log = logging.getLogger(__name__)


def allocate_lines(num_rows: Mapping[LangPair, int], budget: int, temperature: float) -> dict[LangPair, int]:
    """Return the number of rows to take of each pair, which sum to min(budget, all rows).

    A pair of n rows has a share in proportion to n ** (1 / temperature), and at most n rows. If a pair has fewer rows
    than its share, the others get the difference in proportion to their shares.
    """
    weights = {pair: Fraction(n ** (1.0 / temperature)) for pair, n in num_rows.items() if n > 0}
    lines = dict.fromkeys(num_rows, 0)
    left = budget
    while weights:
        total = sum(weights.values())
        full = [pair for pair, weight in weights.items() if left * weight >= num_rows[pair] * total]
        if not full:
            break
        for pair in full:
            lines[pair] = num_rows[pair]
            left -= num_rows[pair]
            del weights[pair]
    exact = {pair: left * weight / sum(weights.values()) for pair, weight in weights.items()}
    lines.update({pair: int(share) for pair, share in exact.items()})
    spare = left - sum(int(share) for share in exact.values()) if exact else 0
    for pair in sorted(exact, key=lambda p: (int(exact[p]) - exact[p], p))[:spare]:  # largest remainder first
        lines[pair] += 1
    return lines


def sample_rows(num_rows: int, num_taken: int, pair: LangPair, seed: int) -> NDArray[np.int64]:
    """Sorted indices of rows taken without replacement; a function of its arguments alone.

    Needs at most 160 bytes for each row taken, however many there are: NumPy permutes the numbers of all rows only
    where a twentieth of them or more is taken.
    """
    key = int.from_bytes(hashlib.blake2b(pair.name.encode(), digest_size=8).digest(), "little")
    chosen = np.random.default_rng([seed, key]).choice(num_rows, size=num_taken, replace=False, shuffle=False)
    return np.sort(chosen).astype(np.int64)


class Sample:
    """Sampled training rows of cleaned pairs, which are read from the files as they are used."""

    def __init__(self, bitexts: Mapping[LangPair, Path], rows: Mapping[LangPair, NDArray[np.int64]]) -> None:
        self._bitexts = bitexts
        self._rows = rows

    def limited(self, sides: Sequence[str], most_chars: int, seed: int) -> "Sample":
        """Return the sample without texts longer than LONGEST_TEXT, with at most `most_chars` characters of all sides.

        Beyond that, rows are left out at random: the same share of every pair, so that the pairs keep their shares.
        """
        chars = {pair: self._chars(pair, sides) for pair in self._rows}
        longest = np.concatenate([longest for _, longest in chars.values()])
        total = np.concatenate([total for total, _ in chars.values()])
        keep = longest <= LONGEST_TEXT
        too_long = int((~keep).sum())
        total[~keep] = 0
        if total.sum() > most_chars:
            left = most_chars
            for row in np.random.default_rng(seed).permutation(len(total)):
                keep[row] &= total[row] <= left
                left -= int(total[row]) * bool(keep[row])
        if not keep.all():
            _log.warning(
                "vocabulary: of %d sampled rows %d are left out as longer than %d characters and %d as more than "
                "vocab.sample_chars=%d together",
                *(len(keep), too_long, LONGEST_TEXT, int((~keep).sum()) - too_long, most_chars),
            )
        ends = np.cumsum([len(rows) for rows in self._rows.values()])[:-1]
        parts = zip(self._rows.items(), np.split(keep, ends), strict=True)
        return Sample(self._bitexts, {pair: rows[mask] for (pair, rows), mask in parts})

    def texts(self, sides: Sequence[str]) -> Iterator[str]:
        """Yield the texts pair by pair, and within a pair _READ_ROWS rows of each side in turn."""
        for pair in self._rows:
            waiting: list[pa.RecordBatch] = []
            for batch in self._batches(pair):
                waiting.append(batch)
                while sum(part.num_rows for part in waiting) >= _READ_ROWS:
                    table = pa.Table.from_batches(waiting)
                    yield from _texts(table.slice(0, _READ_ROWS), sides)
                    waiting = table.slice(_READ_ROWS).to_batches()
            if waiting:
                yield from _texts(pa.Table.from_batches(waiting), sides)

    def _batches(self, pair: LangPair) -> Iterator[pa.RecordBatch]:
        """Yield the sampled rows of a pair."""
        rows, first = self._rows[pair], 0
        for batch in iter_bitext(self._bitexts[pair], "train"):
            since, until = np.searchsorted(rows, (first, first + batch.num_rows))
            if since < until:
                yield batch.take(pa.array(rows[since:until] - first))
            first += batch.num_rows

    def _chars(self, pair: LangPair, sides: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the characters of every row: of all sides, and of the longest side."""
        totals, longest = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for batch in self._batches(pair):
            lengths = [pc.utf8_length(batch[side]).to_numpy().astype(np.int64) for side in sides]
            totals.append(np.sum(lengths, axis=0))
            longest.append(np.max(lengths, axis=0))
        return np.concatenate(totals), np.concatenate(longest)


def _texts(table: Any, sides: Sequence[str]) -> Iterator[str]:
    for side in sides:
        yield from table[side].to_pylist()
