"""Dropout: share of zeros, scale, gradient and draws."""

import pytest
import torch

from pipeline.model.dropout import DroppedSum, add_dropped, dropout


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5])
def test_zeros_scale_and_gradient(dtype, probability):
    torch.manual_seed(1)
    x = torch.ones(401, 499, dtype=dtype, requires_grad=True)  # not a multiple of four
    y = dropout(x, probability, training=True)
    zeros = (y == 0).double()
    n = x.numel()
    assert float(zeros.mean()) == pytest.approx(probability, abs=5 * (probability * (1 - probability) / n) ** 0.5)
    for lane in range(4):  # a lane is 16 bits of a draw
        share = float(zeros.flatten()[lane::4].mean())
        assert share == pytest.approx(probability, abs=5 * (probability * (1 - probability) / (n / 4)) ** 0.5)
    assert torch.unique(y).tolist() == pytest.approx([0, 1 / (1 - probability)], rel=2**-8)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_neighbours_are_independent():
    torch.manual_seed(1)
    zeros = dropout(torch.ones(1 << 20), 0.5, training=True) == 0
    for distance in (1, 2, 3, 4, 512):
        equal = (zeros[distance:] == zeros[:-distance]).double().mean()
        assert float(equal) == pytest.approx(0.5, abs=5 * 0.5 / 2**10)


def test_the_seed_decides():
    x = torch.ones(1000)
    torch.manual_seed(1)
    first, second = dropout(x, 0.1, training=True), dropout(x, 0.1, training=True)
    torch.manual_seed(1)
    assert torch.equal(dropout(x, 0.1, training=True), first)
    assert not torch.equal(first, second)


def test_nothing_is_drawn_where_nothing_is_dropped():
    x = torch.ones(100)
    before = torch.get_rng_state()
    assert torch.equal(dropout(x, 0.1, training=False), x)
    assert torch.equal(dropout(x, 0.0, training=True), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_residual_connection_draws_as_dropout():
    x, y = torch.randn(5, 7), torch.randn(5, 7)
    for training in (True, False):
        torch.manual_seed(1)
        total = add_dropped(x, y, 0.3, training)
        torch.manual_seed(1)
        assert torch.equal(total, x + dropout(y, 0.3, training))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_residual_connection_of_a_gpu(dtype):
    """Its function runs on a CPU, too. The zeros of the sum are those of the gradient, which is in y's dtype."""
    torch.manual_seed(1)
    x = torch.randn(401, 499, requires_grad=True)
    y = torch.ones(401, 499, dtype=dtype, requires_grad=True)
    total = DroppedSum.apply(x, y, 0.3)
    added = (total - x).detach()
    assert float((added == 0).double().mean()) == pytest.approx(0.3, abs=5 * (0.3 * 0.7 / x.numel()) ** 0.5)
    torch.testing.assert_close(added[added != 0], torch.full_like(added[added != 0], 1 / 0.7), atol=1e-6, rtol=0)
    goal = torch.randn_like(total)
    total.backward(goal)
    assert torch.equal(x.grad, goal)
    assert y.grad.dtype == dtype
    torch.testing.assert_close(y.grad, (goal / 0.7).where(added != 0, 0.0).to(dtype))
