import math

import numpy as np
import pytest

from eval.report.plots.trendline import (
    TrendPoint,
    average_ranks,
    default_bandwidth,
    rank_pairs,
    smooth,
    smoothing_weights,
    spearman,
    trend_band,
)


def _point(pair: str, train_pairs: int) -> TrendPoint:
    return TrendPoint(pair=pair, label=pair, train_pairs=train_pairs, delta=0, ci_low=-1, ci_high=1, joint=np.zeros(1))


def test_smoothing_of_three_points_is_the_hand_computation() -> None:
    e = math.exp(-0.5)
    # At the middle the weights e, 1, e are symmetric, so the slope does not enter: (3e) / (1 + 2e).
    # At the left end: weights 1, e, f with f = exp(-2); s0 = 1+e+f, s1 = e+2f, s2 = e+4f, t0 = 3f, t1 = 6f.
    f = math.exp(-2)
    s0, s1, s2, t0, t1 = 1 + e + f, e + 2 * f, e + 4 * f, 3 * f, 6 * f
    left = (s2 * t0 - s1 * t1) / (s0 * s2 - s1 * s1)
    assert smooth([0, 1, 2], [0, 0, 3], [0, 1], 1.0) == pytest.approx([left, 3 * e / (1 + 2 * e)])


def test_one_point_is_a_constant_and_two_are_their_line() -> None:
    assert smooth([4], [2.5], [0, 4, 9], 1.0) == pytest.approx([2.5, 2.5, 2.5])
    assert smooth([0, 1], [1, 3], [0, 0.5, 1], 1.0) == pytest.approx([1, 2, 3])


def test_straight_lines_are_kept_and_far_evaluation_stays_finite() -> None:
    ranks = np.arange(30)
    assert smooth(ranks, 2 - 0.3 * ranks, ranks, default_bandwidth(30)) == pytest.approx(2 - 0.3 * ranks)
    assert np.isfinite(smooth([0, 1, 2], [1, 0, 1], [500.0], 1.0)).all()


def test_a_band_is_the_middle_of_the_resampled_trends() -> None:
    # Of 80 resamples two are left out at either end. Two points that rise together, then in opposite directions.
    values = np.arange(80.0)
    low, high = trend_band(np.array([[0.5, 0.5], [2.0, -1.0]]), [values, values])
    assert (low.tolist(), high.tolist()) == ([2, 2], [77, 77])
    low, high = trend_band(np.array([[0.5, 0.5], [2.0, -1.0]]), [values, -values])
    assert (low.tolist(), high.tolist()) == ([0, 6], [0, 231])
    low, high = trend_band(smoothing_weights([4], [4], 1.0), [values])
    assert (low.tolist(), high.tolist()) == ([2], [77])


def test_smoothing_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ValueError, match="ranks=0"):
        smooth([], [], [0], 1.0)
    with pytest.raises(ValueError, match="values=1"):
        smooth([0, 1], [0], [0], 1.0)
    with pytest.raises(ValueError, match="bandwidth=0"):
        smooth([0], [0], [0], 0)


def test_rank_is_over_all_systems_and_breaks_ties_by_name() -> None:
    systems = {"a": [_point("tr", 5), _point("de", 90)], "b": [_point("ar", 5), _point("fr", 7)]}
    assert rank_pairs(systems) == {"de": 0, "fr": 1, "ar": 2, "tr": 3}


def test_spearman_is_the_textbook_value() -> None:
    # Differences of ranks 0, 1, -1, 1, -1: 1 - 6 * 4 / (5 * 24).
    assert spearman([1, 2, 3, 4, 5], [10, 30, 20, 50, 40]) == pytest.approx(0.8)
    assert spearman([1, 2, 3], [9, 4, 1]) == pytest.approx(-1)
    assert average_ranks([5, 1, 5]).tolist() == [2.5, 1, 2.5]


def test_spearman_is_undefined_for_two_points_or_no_variation() -> None:
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 2, 3], [7, 7, 7]) is None
