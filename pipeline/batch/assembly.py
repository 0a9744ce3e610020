"""Assembly of named sentences into tensors."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.batch.batch import Batch
from pipeline.batch.config import GroupShape
from pipeline.vocab.symbols import EOS, PAD

Ints = npt.NDArray[np.int64]


class Sentences(Protocol):
    """Encoded sentence pairs of one language pair. `source` and `target` return the tokens of a sentence."""

    def source(self, index: int) -> npt.NDArray[Any]: ...

    def target(self, index: int) -> npt.NDArray[Any]: ...


def assemble(group: Sequence[Sequence[tuple[int, int]]], shape: GroupShape, data: Sequence[Sentences]) -> Batch:
    """Return one group as tensors.

    group: rows of (pair, index). Missing rows are padding. A group without rows is an empty group.
    data: sentences of each pair.
    """
    sizes = np.array([len(row) for row in group], dtype=np.int64)
    names = [name for row in group for name in row]
    pairs = np.array([pair for pair, _ in names], dtype=np.int64)
    encoder = _Side([data[pair].source(index) for pair, index in names], sizes, shape.rows, shape.source)
    decoder = _Side([data[pair].target(index) for pair, index in names], sizes, shape.rows, shape.target)
    inputs = np.concatenate(([EOS], decoder.tokens[:-1]))[: len(decoder.tokens)]
    inputs[decoder.positions == 0] = EOS
    return Batch(
        encoder_tokens_BL=encoder.laid_out(encoder.tokens, PAD),
        encoder_segments_BL=encoder.laid_out(encoder.segments),
        encoder_positions_BL=encoder.laid_out(encoder.positions),
        decoder_input_tokens_BT=decoder.laid_out(inputs, PAD),
        decoder_target_tokens_BT=decoder.laid_out(decoder.tokens, PAD),
        decoder_segments_BT=decoder.laid_out(decoder.segments),
        decoder_positions_BT=decoder.laid_out(decoder.positions),
        pair_BL=encoder.laid_out(encoder.of_tokens(pairs)),
        pair_BT=decoder.laid_out(decoder.of_tokens(pairs)),
        num_pairs=len(data),
    )


class _Side:
    """One side of a group's sentences, one after the other, and the place of each token. Rows fill from the left.

    tokens: tokens of all sentences.
    segments: for each token the number of its sentence in the row: 1, 2, …
    positions: for each token its position in the sentence: 0, 1, …
    """

    def __init__(self, sentences: Sequence[npt.NDArray[Any]], row_sizes: Ints, rows: int, length: int) -> None:
        self._shape = (rows, length)
        self._lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        starts = np.cumsum(self._lengths) - self._lengths
        self.tokens = np.concatenate([np.zeros(0, np.int64), *sentences])
        self.positions = np.arange(len(self.tokens)) - self.of_tokens(starts)
        row = np.repeat(np.arange(len(row_sizes)), row_sizes)
        first = np.repeat(np.cumsum(row_sizes) - row_sizes, row_sizes)  # first sentence of the row
        self.segments = self.of_tokens(np.arange(len(sentences)) - first + 1)
        self._places = self.of_tokens(row * length + starts - starts[first]) + self.positions

    def of_tokens(self, of_sentences: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Repeat the value of each sentence for all its tokens."""
        return np.repeat(of_sentences, self._lengths)

    def laid_out(self, values: npt.NDArray[Any], padding: int = 0) -> Tensor:
        """Put the values of tokens into their places, int64 [rows, length]."""
        flat = np.full(self._shape[0] * self._shape[1], padding, dtype=np.int64)
        flat[self._places] = values
        return torch.from_numpy(flat.reshape(self._shape))
