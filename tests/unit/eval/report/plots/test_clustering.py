import numpy as np
import pytest

from eval.report.plots.clustering import average_linkage, leaf_order


def of_points(points: list[float]) -> np.ndarray:
    return np.abs(np.subtract.outer(points, points)).astype(np.float64)


def test_average_linkage_by_hand() -> None:
    """0, 10, 1, 13, 12: {3, 4} and {0, 2} at 1, {3, 4} with 1 at (3 + 2) / 2, the two at the mean of six distances."""
    merges = average_linkage(of_points([0.0, 10.0, 1.0, 13.0, 12.0]))
    assert [sorted(merge.members) for merge in merges] == [[0, 2], [3, 4], [1, 3, 4], [0, 1, 2, 3, 4]]
    assert [merge.height for merge in merges] == pytest.approx([1, 1, 2.5, (10 + 9 + 13 + 12 + 12 + 11) / 6])


def test_like_things_stand_side_by_side() -> None:
    points = [0.0, 10.0, 1.0, 13.0, 12.0]
    assert [points[place] for place in leaf_order(of_points(points))] == [0, 1, 10, 12, 13]


def test_one_and_two_things_have_an_order() -> None:
    assert leaf_order(np.zeros((1, 1))) == [0]
    assert leaf_order(of_points([3.0, 1.0])) == [0, 1]


def test_merges_never_go_down_and_hold_every_thing() -> None:
    points_PD = np.random.default_rng(1).normal(size=(38, 5))
    distance_PP = np.linalg.norm(points_PD[:, None] - points_PD[None], axis=-1)
    merges = average_linkage(distance_PP)
    heights = [merge.height for merge in merges]
    assert heights == sorted(heights)
    assert sorted(leaf_order(distance_PP)) == list(range(38))
    for merge in merges:
        assert merge.height == pytest.approx(distance_PP[np.ix_(merge.left, merge.right)].mean())
