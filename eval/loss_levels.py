"""How many target tokens a run takes to a training loss (GShard, Table 2)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eval.run_record import LossPoint

_MEAN_REACH = 12  # training records on either side that a point of the smoothed loss averages, at most
_NUM_LEVELS = 3
_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0)  # between levels
_SMALLEST_STEP = 0.04  # of the lowest loss: below it, levels tell noise apart


def moving_mean(values: ArrayLike) -> NDArray[np.float64]:
    """Mean over a window around each value: narrower at the steep start, one-sided at the noisy end."""
    array = np.asarray(values, dtype=np.float64)
    reach = min(_MEAN_REACH, len(array) // 20)
    place = np.arange(len(array))
    starts = place - np.minimum(reach, place)
    ends = np.minimum(place + np.minimum(reach, place) + 1, len(array))
    sums = np.concatenate([[0.0], np.cumsum(array)])
    means: NDArray[np.float64] = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def lowest_loss(train: Sequence[LossPoint]) -> float | None:
    """The lowest value of the smoothed training cross-entropy; None without records."""
    return float(moving_mean([point.cross_entropy for point in train]).min()) if train else None


def tokens_to(train: Sequence[LossPoint], level: float) -> int | None:
    """Target tokens at the first record whose smoothed training cross-entropy is at the level or below it; None where
    it is never."""
    means = moving_mean([point.cross_entropy for point in train])
    return next((point.target_tokens for point, mean in zip(train, means, strict=True) if mean <= level), None)


def round_levels(lowest: Sequence[float]) -> tuple[float, ...]:
    """Three round losses, evenly spaced and decreasing, for runs that came down to `lowest`: the last is one that only
    the best reach, the first one that all of them do where the steps between levels can be that wide."""
    if not lowest:
        return ()
    best, worst = min(lowest), max(lowest)
    for step in _STEPS:
        last = np.ceil(best / step - 1e-9) * step
        if step >= _SMALLEST_STEP * best and last + (_NUM_LEVELS - 1) * step >= worst:
            break
    return tuple(round(float(last + step * place), 4) for place in reversed(range(_NUM_LEVELS)))
