"""Shuffled orders, any part of which can be computed alone."""

import numpy as np
import pytest

from pipeline.batch.shuffle import shuffled


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 629, 8191, 100_000])
def test_every_row_has_its_place_and_parts_agree_with_the_whole(size):
    whole = shuffled(np.arange(size), size, (1, 2, 3))
    assert sorted(whole.tolist()) == list(range(size))
    part = slice(size // 3, size // 3 + 10)
    assert shuffled(np.arange(size)[part], size, (1, 2, 3)).tolist() == whole[part].tolist()


@pytest.mark.parametrize("size", [3, 20, 101])
def test_every_row_comes_as_often_in_every_place(size):
    """Chi-square of 2000 orders, with (size - 1)^2 degrees of freedom, stays within five standard deviations."""
    orders, freedom = 2000, (size - 1) ** 2
    counts = np.zeros((size, size))
    for key in range(orders):
        counts[np.arange(size), shuffled(np.arange(size), size, (7, key))] += 1
    statistic = ((counts - orders / size) ** 2 / (orders / size)).sum()
    assert statistic < freedom + 5 * np.sqrt(2 * freedom)


def test_neighbours_part():
    """Neighbouring rows of a corpus come from one document. Their mean distance becomes a third of the size."""
    places = np.argsort(shuffled(np.arange(10_000), 10_000, (5,)))
    assert np.abs(np.diff(places)).mean() == pytest.approx(10_000 / 3, rel=0.05)


def test_all_orders_of_few_rows_occur():
    orders = {tuple(shuffled(np.arange(3), 3, (1, epoch)).tolist()) for epoch in range(100)}
    assert len(orders) == 6
