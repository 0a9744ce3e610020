"""Products with weights on cuda:0 under autocast: which gradients are made, and copies of weights that are kept."""

import pytest

from tests.cuda.projection import CASES, copies_of_weight_in_16_bits, ratios_with_copies, which_get_gradients


@pytest.mark.parametrize("needed", [[True, False], [False, True]])
def test_what_needs_no_gradient_gets_none(on_cuda, needed):
    assert on_cuda(which_get_gradients, needed) == needed


@pytest.mark.parametrize("name", CASES)
def test_kept_copies_last_until_they_are_forgotten(on_cuda, name):
    """A change of the weights shows where they are copied anew: without a gradient, and after `forget_copies`."""
    assert on_cuda(ratios_with_copies, name) == [2, 2, 4, 4]


def test_weights_in_16_bits_are_not_copied(on_cuda):
    assert on_cuda(copies_of_weight_in_16_bits) == 0
