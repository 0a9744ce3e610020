"""Fitting the open target lengths of shapes to the data."""

import math
from collections.abc import Sequence
from dataclasses import replace

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.lengths import PairLengths, units_of
from pipeline.batch.proportions import phases


def fit_targets(config: BatchConfig, lengths: Sequence[PairLengths]) -> BatchConfig:
    """Replace every target length of 0, so that rows become full on both sides at the same time.

    The new length follows the ratio of target to source tokens in the last phase of the mixture. It is rounded up to a
    multiple of 4, and at most the target length of the last shape.
    """
    units = units_of(lengths)
    probabilities = phases(config.mixture, [pair.name for pair in lengths], units)[-1].probabilities
    source = target = 0.0
    for unit, probability in zip(units, probabilities.tolist(), strict=True):
        if probability:
            pair, rows = lengths[unit.pair], slice(unit.begin, unit.end)
            source += probability * float(pair.source[rows].mean())
            target += probability * float(pair.target[rows].mean())

    def fit(shape: GroupShape) -> GroupShape:
        length = math.ceil(shape.source * target / source / 4) * 4
        return shape if shape.target else replace(shape, target=min(length, config.max_target))

    return replace(config, shapes=[fit(shape) for shape in config.shapes])
