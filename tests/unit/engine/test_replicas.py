"""A digest tells replicas apart that differ in a few bits. tests/parallel/test_drift.py repairs real ones."""

import pytest
import torch

from pipeline.engine.replicas import _digest


def moved(values, steps):
    """Return values whose elements are so many representable numbers further. steps: by place."""
    bits = values.clone().view(torch.int32)
    for place, number in steps.items():
        bits[place] += number
    return bits.view(torch.float32)


@pytest.mark.parametrize("steps", [{0: 1}, {3: 2, 7: -1}, {1: 1, 2: -2, 3: 1}, {0: 3, 2: -1}], ids=str)
def test_small_differences_do_not_cancel(steps):
    """Sums of elements by place, 1 to 8, would be equal but for the first case."""
    values = torch.linspace(0.5, 1, 8)
    assert _digest(moved(values, steps), torch.device("cpu")) != _digest(values, torch.device("cpu"))


def test_places_count():
    values = torch.tensor([1.0, 2.0, 3.0])
    assert _digest(values.flip(0), torch.device("cpu")) != _digest(values, torch.device("cpu"))
    assert _digest(values.clone(), torch.device("cpu")) == _digest(values, torch.device("cpu"))
