"""Shapes whose target length is left open, fitted to what is drawn."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.lengths import PairLengths, units_of
from pipeline.batch.proportions import phases

Floats = npt.NDArray[np.float64]
MULTIPLE = 4


def fit_targets(config: BatchConfig, lengths: Sequence[PairLengths]) -> BatchConfig:
    """The same shapes, with every target of 0 set so that rows fill on both sides at once: to the ratio of target to
    source tokens of the sentences that go to this shape, in the last phase of the mixture.

    Rounded up to a multiple of 4, no longer than the last shape's and no shorter than that of the shape before.
    """
    if all(shape.target for shape in config.shapes):
        return config
    left = _drawn(config, lengths)
    fitted: list[GroupShape] = []
    for shape in config.shapes:
        target = shape.target or _fitted(left, shape.source, config.max_target)
        target = max(target, fitted[-1].target) if fitted and not shape.target else target
        fitted.append(replace(shape, target=target))
        left[: shape.source + 1, : target + 1] = 0
    return replace(config, shapes=fitted)


def _drawn(config: BatchConfig, lengths: Sequence[PairLengths]) -> Floats:
    """Share of the sentences drawn that have s source and t target tokens, at [s, t]."""
    units = units_of(lengths)
    probabilities = phases(config.mixture, [pair.name for pair in lengths], units)[-1].probabilities
    width = config.max_target + 1
    drawn = np.zeros((config.max_source + 1) * width)
    for unit, probability in zip(units, probabilities, strict=True):
        pair, rows = lengths[unit.pair], slice(unit.begin, unit.end)
        if probability:
            kinds = pair.source[rows].astype(np.int64) * width + pair.target[rows]
            drawn += np.bincount(kinds, minlength=len(drawn)) * (probability / unit.rows)
    table: Floats = drawn.reshape(-1, width)
    return table


def _fitted(left: Floats, source: int, longest: int) -> int:
    """The target length of a shape depends on the sentences that go to it and these on its target length: from the
    longest one down, until it stays."""
    sources, targets = np.arange(left.shape[0]), np.arange(left.shape[1])
    target = longest
    while True:
        mine = left[: source + 1, : target + 1]
        source_tokens = float(mine.sum(axis=1) @ sources[: source + 1])
        if not source_tokens:
            return target
        ratio = float(mine.sum(axis=0) @ targets[: target + 1]) / source_tokens
        shorter = min(target, math.ceil(round(source * ratio / MULTIPLE, 9)) * MULTIPLE)
        if shorter == target:
            return target
        target = shorter
