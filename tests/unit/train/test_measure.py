"""What a step costs beside its FLOPs."""

import numpy as np
import pytest
import torch

from pipeline.batch.config import GroupShape
from pipeline.batch.packing import Step
from pipeline.train.measure import padding, peak_memory


def test_padding_counts_both_sides_and_empty_groups():
    """2 groups of 2 rows of 8 + 4 slots; 6 + 3 and 5 + 2 tokens in one row, 4 + 4 in another."""
    step = Step(
        shape=GroupShape(rows=2, source=8, target=4),
        num_groups=2,
        sentences=np.array([[0, 0], [0, 1], [1, 0]]),
        lengths=np.array([[6, 3], [5, 2], [4, 4]]),
        ends=np.array([2, 3]),
    )
    assert step.groups == [[[(0, 0), (0, 1)], [(1, 0)]], []]
    assert padding(step) == pytest.approx(1 - (15 + 9) / 48)


def test_peak_memory_is_in_bytes_and_never_falls():
    before = peak_memory(torch.device("cpu"))
    block = torch.ones(1 << 27, dtype=torch.uint8)
    assert peak_memory(torch.device("cpu")) >= max(before, len(block))
    del block
    assert peak_memory(torch.device("cpu")) >= before
