"""Attention by MKL equals torch's attention, and leaves the switch of the process as it was."""

import pytest
import torch
import torch.nn.functional as F

from pipeline.model.fused_attention import SWITCH, MklAttention, attend


@pytest.fixture(autouse=True)
def _onednn():
    before = SWITCH.fp32_precision
    SWITCH.fp32_precision = "bf16"
    yield
    SWITCH.fp32_precision = before


def inputs(masked, dtype=torch.float64):
    source = torch.Generator().manual_seed(1)
    tensors = [torch.randn(2, 3, n, 8, generator=source, dtype=dtype).requires_grad_() for n in (5, 7, 7)]
    mask = torch.zeros(2, 1, 5, 7, dtype=dtype).masked_fill_(torch.rand(2, 1, 5, 7, generator=source) < 0.3, -1e9)
    return tensors, mask if masked else None


@pytest.mark.parametrize("masked", [True, False])
def test_forward_and_gradients_are_those_of_torch(masked):
    tensors, mask = inputs(masked)
    fused, reference = MklAttention.apply(*tensors, mask), F.scaled_dot_product_attention(*tensors, attn_mask=mask)
    torch.testing.assert_close(fused, reference)
    goal = torch.randn_like(reference)
    for a, b in zip(
        torch.autograd.grad(fused, tensors, goal), torch.autograd.grad(reference, tensors, goal), strict=True
    ):
        torch.testing.assert_close(a, b)
    assert SWITCH.fp32_precision == "bf16"


def test_what_needs_no_gradient_gets_none():
    (query, key, value), mask = inputs(True)
    key.requires_grad_(False)
    attend(query, key, value, mask).sum().backward()
    assert key.grad is None
    assert query.grad is not None
    with torch.no_grad():
        assert not attend(query, key, value, mask).requires_grad


def test_bfloat16_is_computed_in_float32_and_autocast_does_not_change_that():
    """The error is that of rounding inputs and result. torch's kernel also rounds in between."""
    tensors, mask = inputs(True, torch.bfloat16)
    wide = [t.detach().double() for t in tensors]
    exact = F.scaled_dot_product_attention(*wide, attn_mask=mask.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fused = attend(*tensors, mask)
    assert fused.dtype == torch.bfloat16
    torch.testing.assert_close(fused.double(), exact, rtol=2**-8, atol=1e-6)
    fused.sum().backward()
    assert all(t.grad.dtype == torch.bfloat16 for t in tensors)
