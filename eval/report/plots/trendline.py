"""The trend of gains over languages in the order of their training data, and rank correlation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eval.score.significance import percentile_interval

FEWEST_TO_FIT = 8  # a line through fewer languages would draw a trend that nobody measured


@dataclass(frozen=True, kw_only=True)
class TrendPoint:
    """The gain of a pair in BLEU, with its 95 % interval.

    joint: the gain in each resample that all pairs share.
    baseline_unfinished: the budget of the pair's baseline ended it while it was still improving.
    """

    pair: str
    label: str
    train_pairs: int
    delta: float
    ci_low: float
    ci_high: float
    joint: NDArray[np.float64]
    baseline_unfinished: bool = False


def rank_pairs(systems: Mapping[str, Iterable[TrendPoint]]) -> dict[str, int]:
    """Return the ranks of all pairs of all systems: 0 for the most training pairs, ties by name."""
    sizes = {point.pair: point.train_pairs for points in systems.values() for point in points}
    return {pair: rank for rank, pair in enumerate(sorted(sizes, key=lambda pair: (-sizes[pair], pair)))}


def default_bandwidth(num_points: int) -> float:
    """Return the standard deviation of the smoothing kernel in ranks: a sixth of the points, at least 1."""
    return max(1.0, num_points / 6)


def smoothing_weights(ranks: ArrayLike, at: ArrayLike, bandwidth: float) -> NDArray[np.float64]:
    """Return the weights [places, points] of a local linear regression with a Gaussian kernel (Fan 1992).

    Each row sums to 1. Straight lines stay exactly as they are, and the ends are not bent towards the middle, as by a
    kernel mean. One point gives a constant, two give their line.

    ranks: positions of the points.
    at: places where the regression is evaluated.
    bandwidth: the kernel's standard deviation in ranks.
    """
    x, x0 = (np.asarray(array, dtype=np.float64) for array in (ranks, at))
    if len(x) == 0:
        raise ValueError("ranks=0 points cannot be smoothed; give at least one")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth={bandwidth} must be above 0")
    distance = x[None, :] - x0[:, None]
    exponent = -0.5 * (distance / bandwidth) ** 2
    kernel = np.exp(exponent - exponent.max(axis=1, keepdims=True))  # relative to the nearest point, against underflow
    s0, s1, s2 = (np.sum(kernel * distance**power, axis=1, keepdims=True) for power in range(3))
    determinant = s0 * s2 - s1**2
    solvable = determinant > 1e-12 * s0 * np.maximum(s2, 1e-300)
    line = kernel * (s2 - s1 * distance) / np.where(solvable, determinant, 1.0)
    weights: NDArray[np.float64] = np.where(solvable, line, kernel / s0)
    return weights


def smooth(ranks: ArrayLike, values: ArrayLike, at: ArrayLike, bandwidth: float) -> NDArray[np.float64]:
    """Return the local linear regression of values on ranks, evaluated at the places `at`."""
    y = np.asarray(values, dtype=np.float64)
    weights = smoothing_weights(ranks, at, bandwidth)
    if weights.shape[1] != len(y):
        raise ValueError(f"ranks={weights.shape[1]} and values={len(y)} must be equally many")
    fitted: NDArray[np.float64] = weights @ y
    return fitted


def trend_band(
    weights: NDArray[np.float64], resampled: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bounds of the 95 % band of a trend: at each place, the central 95 % of its values in the resamples.

    One point gives the interval of its resamples.

    weights: weights from `smoothing_weights`.
    resampled: the values of each point in the joint resamples.
    """
    trends = weights @ np.stack(resampled)
    low, high = np.array([percentile_interval(values) for values in trends]).T
    return low, high


def average_ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return ranks from 1. Equal values get the mean of their ranks."""
    array = np.asarray(values, dtype=np.float64)
    below = (array[:, None] > array[None, :]).sum(axis=1)
    equal = (array[:, None] == array[None, :]).sum(axis=1)
    ranks: NDArray[np.float64] = below + (equal + 1) / 2
    return ranks


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation (Pearson's on average ranks), or None under 3 points or without variation."""
    if len(x) != len(y):
        raise ValueError(f"x={len(x)} and y={len(y)} must be equally many")
    if len(x) < 3:
        return None
    rank_x, rank_y = average_ranks(x), average_ranks(y)
    centred_x, centred_y = rank_x - rank_x.mean(), rank_y - rank_y.mean()
    scale = float(np.sqrt((centred_x**2).sum() * (centred_y**2).sum()))
    return None if scale == 0 else float((centred_x * centred_y).sum()) / scale
