"""From named sentences to tensors."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from pipeline.batch.batch import Batch
from pipeline.batch.config import GroupShape
from pipeline.vocab.symbols import EOS, PAD


class Sentences(Protocol):
    """Encoded sentence pairs of one language pair."""

    def source(self, index: int) -> npt.NDArray[Any]: ...

    def target(self, index: int) -> npt.NDArray[Any]: ...


def assemble(group: Sequence[Sequence[tuple[int, int]]], shape: GroupShape, data: Sequence[Sentences]) -> Batch:
    """One group as tensors. group: rows of (pair, index); fewer rows than the shape's leave padding, none is an empty
    group."""
    encoder = _Side(shape.rows, shape.source)
    decoder = _Side(shape.rows, shape.target)
    inputs = np.full((shape.rows, shape.target), PAD, dtype=np.int64)
    for row, sentences in enumerate(group):
        for segment, (pair, index) in enumerate(sentences, start=1):
            encoder.append(row, segment, pair, data[pair].source(index))
            target = data[pair].target(index)
            where = decoder.append(row, segment, pair, target)
            inputs[row, where] = np.concatenate(([EOS], target[:-1]))
    return Batch(
        encoder_tokens_BL=torch.from_numpy(encoder.tokens),
        encoder_segments_BL=torch.from_numpy(encoder.segments),
        encoder_positions_BL=torch.from_numpy(encoder.positions),
        decoder_input_tokens_BT=torch.from_numpy(inputs),
        decoder_target_tokens_BT=torch.from_numpy(decoder.tokens),
        decoder_segments_BT=torch.from_numpy(decoder.segments),
        decoder_positions_BT=torch.from_numpy(decoder.positions),
        pair_BL=torch.from_numpy(encoder.pairs),
        pair_BT=torch.from_numpy(decoder.pairs),
        num_pairs=len(data),
    )


class _Side:
    """Tokens, segments, positions and pairs of one side, filled from the left."""

    def __init__(self, rows: int, length: int) -> None:
        self.tokens = np.full((rows, length), PAD, dtype=np.int64)
        self.segments = np.zeros((rows, length), dtype=np.int64)
        self.positions = np.zeros((rows, length), dtype=np.int64)
        self.pairs = np.zeros((rows, length), dtype=np.int64)
        self.used = [0] * rows

    def append(self, row: int, segment: int, pair: int, tokens: npt.NDArray[Any]) -> slice:
        where = slice(self.used[row], self.used[row] + len(tokens))
        self.tokens[row, where] = tokens
        self.segments[row, where] = segment
        self.pairs[row, where] = pair
        self.positions[row, where] = np.arange(len(tokens))
        self.used[row] = where.stop
        return where
