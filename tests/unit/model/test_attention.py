"""Masks of packed rows: every query sees a key, so that attention is finite in every dtype and kernel."""

import pytest
import torch

from pipeline.model.attention import Attention, segment_mask
from pipeline.model.fused_attention import attention_weights

# the second row has padding among its queries and none among its keys
QUERIES = torch.tensor([[1, 1, 2, 0], [1, 2, 0, 0]])
KEYS = torch.tensor([[1, 2, 2, 0, 0], [1, 1, 1, 2, 2]])
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
LEAST_LOG_SUM = -88.0  # cuDNN's gradient takes exp(-log sum), which float32 holds above it


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sides", ["self", "causal", "cross"])
def test_every_query_sees_a_key_and_masks_are_finite(dtype: torch.dtype, sides: str) -> None:
    keys = KEYS if sides == "cross" else QUERIES
    mask = segment_mask(QUERIES, keys, causal=sides == "causal", dtype=dtype)
    assert mask.dtype == dtype
    assert mask.isfinite().all()
    assert (mask.double().logsumexp(-1) > LEAST_LOG_SUM).all()
    same_B1LL = (QUERIES[:, :, None] == keys[:, None, :])[:, None]
    real_B1L = (QUERIES > 0)[:, None]
    visible_B1LL = same_B1LL.tril() if sides == "causal" else same_B1LL
    assert torch.equal(mask[real_B1L] == 0, visible_B1LL[real_B1L])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masked_keys_have_a_weight_of_zero(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, 3, length, 8, generator=generator).to(dtype) for length in (4, 5))
    mask = segment_mask(QUERIES, KEYS, causal=False, dtype=dtype)
    weight_BNLL = attention_weights(query, key, mask)
    assert weight_BNLL.isfinite().all()
    assert (weight_BNLL[(mask < 0).expand_as(weight_BNLL)] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_padding_that_sees_no_padding_gets_and_gives_no_gradient(dtype: torch.dtype) -> None:
    """Nothing reads the output of padding, so the gradients are those of the real tokens alone."""
    generator = torch.Generator().manual_seed(0)
    attention = Attention(8, 2, 4)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    x_BLM, memory_BLM = (torch.randn(2, length, 8, generator=generator).requires_grad_() for length in (4, 5))
    mask = segment_mask(QUERIES, KEYS, causal=False, dtype=dtype)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        y_BLM = attention(x_BLM, memory_BLM, mask)
        alone_BLM = attention(x_BLM[1:, :2], memory_BLM[1:], mask[1:, :, :2])
    assert y_BLM.isfinite().all()
    inputs = [x_BLM, memory_BLM, *attention.parameters()]
    gradients = torch.autograd.grad(y_BLM[1, :2].float().square().sum(), inputs)
    expected = torch.autograd.grad(alone_BLM.float().square().sum(), inputs)
    assert (gradients[0][1, 2:] == 0).all()
    for gradient, real in zip(gradients, expected, strict=True):
        # sums of products in another order, in 8 or more bits
        torch.testing.assert_close(gradient, real, rtol=0, atol=2**-6 * float(real.abs().max()))
