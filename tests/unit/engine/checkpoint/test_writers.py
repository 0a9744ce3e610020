"""Parts of tensors are dealt to processes, each part once, and each process gets about as much."""

from itertools import product

import numpy as np
import pytest

from pipeline.engine.checkpoint.writers import Part, names_to_write
from pipeline.parallel.layout import AXES

SIZES = [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 3, 2), (1, 1, 8)]


def parts_of(sizes, number, seed):
    """Return parts of tensors that are cut over some of the axes, or none."""
    draws = np.random.default_rng(seed)
    axes = [tuple(axis for axis in AXES if draws.random() < 0.4) for _ in range(number)]
    return [Part(f"model.{n}", cut, int(draws.integers(4, 4000))) for n, cut in enumerate(axes)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("sizes", SIZES)
def test_each_part_is_written_once_and_the_shares_are_even(sizes, seed):
    parts, by_axis = parts_of(sizes, 60, seed), dict(zip(AXES, sizes, strict=True))
    places = [dict(zip(AXES, place, strict=True)) for place in product(*map(range, sizes))]
    written, shares = [], []
    for place in places:
        names = names_to_write(parts, by_axis, place)
        own = [part for part in parts if part.name in names]
        written += [(part.name, *(place[axis] for axis in AXES if axis in part.axes)) for part in own]
        shares.append(sum(part.size for part in own))
    expected = [(p.name, *index) for p in parts for index in product(*(range(by_axis[a]) for a in AXES if a in p.axes))]
    assert sorted(written) == sorted(expected)
    assert max(shares) - min(shares) <= max(part.size for part in parts)


def test_one_process_writes_everything():
    parts = parts_of((1, 1, 1), 9, 1)
    assert names_to_write(parts, dict.fromkeys(AXES, 1), dict.fromkeys(AXES, 0)) == {part.name for part in parts}
