"""The target tokens that a run needs to reach a training loss (GShard, Table 2)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eval.records.run_record import LossPoint

_MEAN_REACH = 12  # a point of the smoothed loss averages at most so many training records on either side
_NUM_LEVELS = 3
_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0)  # possible distances of levels
_SMALLEST_STEP = 0.04  # least distance of levels over the lowest loss; closer levels would differ by noise


def moving_mean(values: ArrayLike) -> NDArray[np.float64]:
    """Return the means over a window around each value, which is narrower at the start and one-sided at the end.

    Losses fall steeply at the start and are noisy at the end.
    """
    array = np.asarray(values, dtype=np.float64)
    reach = min(_MEAN_REACH, len(array) // 20)
    place = np.arange(len(array))
    starts = place - np.minimum(reach, place)
    ends = np.minimum(place + np.minimum(reach, place) + 1, len(array))
    sums = np.concatenate([[0.0], np.cumsum(array)])
    means: NDArray[np.float64] = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def lowest_loss(train: Sequence[LossPoint]) -> float | None:
    """Return the lowest value of the smoothed training cross-entropy, or None without records."""
    return float(moving_mean([point.cross_entropy for point in train]).min()) if train else None


def tokens_to(train: Sequence[LossPoint], level: float) -> int | None:
    """Return the target tokens at the first record whose smoothed cross-entropy is at most `level`, or None."""
    means = moving_mean([point.cross_entropy for point in train])
    return next((point.target_tokens for point, mean in zip(train, means, strict=True) if mean <= level), None)


def round_levels(lowest: Sequence[float]) -> tuple[float, ...]:
    """Return three round losses, decreasing and evenly spaced, to which the tokens of runs are counted.

    Only the best run reaches the last level. All runs reach the first one, unless this needs too wide a distance.

    lowest: the lowest loss of each run.
    """
    if not lowest:
        return ()
    best, worst = min(lowest), max(lowest)
    for step in _STEPS:
        last = np.ceil(best / step - 1e-9) * step
        if step >= _SMALLEST_STEP * best and last + (_NUM_LEVELS - 1) * step >= worst:
            break
    return tuple(round(float(last + step * place), 4) for place in reversed(range(_NUM_LEVELS)))
