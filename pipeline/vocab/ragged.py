"""Rows of token ids as one array with their lengths, and operations on them without a Python loop over rows."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.vocab.symbols import EOS

_RAW = "_EncodeAsBufferBatch"


class Ragged(NamedTuple):
    """Rows of different lengths. tokens: tokens of all rows, one row after the other. lengths: length of every row."""

    tokens: NDArray[Any]
    lengths: NDArray[np.int64]

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> Self:
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum())), lengths)

    def select(self, keep: NDArray[np.bool_]) -> "Ragged":
        """Return the rows where `keep` is true."""
        if keep.all():
            return self
        return Ragged(self.tokens[np.repeat(keep, self.lengths)], self.lengths[keep])

    def prefixed(self, first: int, second: NDArray[np.int32]) -> "Ragged":
        """Return every row after `first` and its entry of `second`, if that is not negative."""
        has_second = second >= 0
        lengths = self.lengths + 1 + has_second
        tokens = np.empty(len(self.tokens) + len(lengths) + int(has_second.sum()), dtype=self.tokens.dtype)
        starts = np.cumsum(lengths) - lengths
        old = np.ones(len(tokens), dtype=bool)
        for places, values in ((starts, first), (starts[has_second] + 1, second[has_second])):
            old[places] = False
            tokens[places] = values
        tokens[old] = self.tokens
        return Ragged(tokens, lengths)

    def cut(self, limit: int) -> "Ragged":
        """Return the rows with at most `limit` tokens. Rows that are cut end in EOS."""
        long = self.lengths > limit
        if not long.any():
            return self
        lengths = np.minimum(self.lengths, limit)
        starts = np.cumsum(self.lengths) - self.lengths
        tokens = self.tokens[np.arange(len(self.tokens)) - np.repeat(starts, self.lengths) < limit]
        tokens[(np.cumsum(lengths) - 1)[long]] = EOS
        return Ragged(tokens, lengths)


def encode_texts(model: Any, texts: list[bytes], threads: int) -> Ragged:
    """Return the pieces of each UTF-8 text and EOS, by a SentencePieceProcessor.

    A private method of SentencePiece gives its arrays as they are. Its public methods make a Python object of every id
    or row, which takes a fifth of the time of encoding.

    threads: -1 is one for each core.
    """
    raw = getattr(model._processor, _RAW, None) if hasattr(model, "_processor") else None
    if raw is None:  # another version of SentencePiece
        return Ragged.from_lists(model.encode([text.decode() for text in texts], add_eos=True, num_threads=threads))
    # thread_pool, enable_sampling, nbest_size, alpha, add_bos, add_eos, reverse
    tokens = np.frombuffer(b"".join(raw(texts, threads, None, False, -1, 0.1, False, True, False)), dtype=np.int32)
    ends = np.flatnonzero(tokens == EOS)  # no text contains the symbol
    assert len(ends) == len(texts), (len(ends), len(texts))
    return Ragged(tokens, np.diff(ends, prepend=-1))
