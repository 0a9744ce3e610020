"""Make steps of random sentences, the same on every process."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.batch.assembly import assemble
from pipeline.batch.batch import Batch
from pipeline.batch.config import GroupShape
from pipeline.vocab.symbols import EOS

SHAPE = GroupShape(rows=4, source=24, target=20)
VOCABULARY = 64
NUM_PAIRS = 2
FIRST_PIECE = 4  # the smaller ids are symbols


@dataclass(frozen=True, kw_only=True)
class SyntheticStep:
    """A step of random sentences. The last group of every third step is empty, and all groups differ.

    groups: one micro-batch each.
    """

    groups: list[Batch]
    target_tokens: int
    nonempty_groups: int


@dataclass(frozen=True)
class _Sentences:
    """Encoded sentences of one language pair."""

    sources: list[npt.NDArray[Any]]
    targets: list[npt.NDArray[Any]]

    def source(self, index: int) -> npt.NDArray[Any]:
        return self.sources[index]

    def target(self, index: int) -> npt.NDArray[Any]:
        return self.targets[index]


@cache
def synthetic_step(number: int, num_groups: int) -> SyntheticStep:
    """Return a step. number: counted from 1."""
    last_is_empty = number % 3 == 0 and num_groups > 1
    groups = [_group(number, group, empty=last_is_empty and group == num_groups - 1) for group in range(num_groups)]
    tokens = [int((batch.decoder_segments_BT > 0).sum()) for batch in groups]
    return SyntheticStep(groups=groups, target_tokens=sum(tokens), nonempty_groups=sum(count > 0 for count in tokens))


def _group(number: int, group: int, *, empty: bool) -> Batch:
    rng = np.random.default_rng([number, group])
    data = [_Sentences([], []) for _ in range(NUM_PAIRS)]
    rows: list[list[tuple[int, int]]] = []
    for _ in range(0 if empty else int(rng.integers(3, SHAPE.rows + 1))):
        row = []
        for pair in rng.permutation(NUM_PAIRS).tolist():
            data[pair].sources.append(_sentence(rng, SHAPE.source // NUM_PAIRS))
            data[pair].targets.append(_sentence(rng, SHAPE.target // NUM_PAIRS))
            row.append((pair, len(data[pair].sources) - 1))
        rows.append(row)
    return assemble(rows, SHAPE, data)


def _sentence(rng: np.random.Generator, longest: int) -> npt.NDArray[Any]:
    """Return a random sentence that is at least half of `longest`, so that experts become full."""
    pieces = rng.integers(FIRST_PIECE, VOCABULARY, size=int(rng.integers(longest // 2, longest)))
    return np.append(pieces, EOS)
