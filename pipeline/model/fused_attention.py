"""Fused attention on a CPU, computed by MKL in float32 even if the process uses oneDNN for large products.

torch's fused attention multiplies small blocks. In float32, MKL does that four to six times faster than oneDNN, and
float32 is more than twice as fast as bfloat16. `pipeline.jobs.matmul` may choose oneDNN for the large products of a
process. Attention then still uses MKL and float32, in forward and backward.
B rows, N heads, L queries, L2 keys, D head dim.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.model.precision import compute_dtype

# oneDNN's switch, which torch's annotations lack; any value other than "ieee" also turns oneDNN on
SWITCH: Any = cast(Any, torch.backends.mkldnn).matmul

# F.scaled_dot_product_attention calls these operators on a CPU. They are called directly, so that backward reads saved
# tensors, which recomputation can drop and compute again.
flash: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def mask_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of masks for `attend`. A GPU takes that of its products, or else casts a mask in each layer."""
    return x.dtype if x.is_cpu else compute_dtype(x)


def attend(query_BNLD: Tensor, key_BNLD: Tensor, value_BNLD: Tensor, mask: Tensor | None) -> Tensor:
    """Return scaled dot-product attention [B, N, L, D]. mask: additive, without gradient."""
    if query_BNLD.is_cpu:
        heads_BNLD: Tensor = attend_on_cpu(query_BNLD, key_BNLD, value_BNLD, mask)
        return heads_BNLD
    return F.scaled_dot_product_attention(query_BNLD, key_BNLD, value_BNLD, attn_mask=mask)


def attend_on_cpu(query_BNLD: Tensor, key_BNLD: Tensor, value_BNLD: Tensor, mask: Tensor | None) -> Tensor:
    """Return `attend` on a CPU, computed by MKL even if the process uses oneDNN for large products.

    It reads a switch of the process, so `pipeline.model.compilation` excludes it from compiled code. A decorator here
    would do the same, but would cost every process two seconds to import a compiler.
    """
    if SWITCH.fp32_precision != "bf16":
        return F.scaled_dot_product_attention(query_BNLD, key_BNLD, value_BNLD, attn_mask=mask)
    dtype = compute_dtype(query_BNLD)
    wide = torch.promote_types(dtype, torch.float32)
    inputs = (t.to(wide) for t in (query_BNLD, key_BNLD, value_BNLD))
    heads_BNLD: Tensor = MklAttention.apply(*inputs, mask)  # type: ignore[no-untyped-call]
    return heads_BNLD.to(dtype)


def attend_few(query_BNLD: Tensor, key_BNLD: Tensor, value_BNLD: Tensor, mask: Tensor | None) -> Tensor:
    """Return `attend` for a few queries, without gradient. A CPU computes plain products faster for them."""
    if not query_BNLD.is_cpu:
        return F.scaled_dot_product_attention(query_BNLD, key_BNLD, value_BNLD, attn_mask=mask)
    with mkl():
        weight = attention_weights(query_BNLD, key_BNLD, mask)
        heads = torch.bmm(weight.flatten(0, 1), value_BNLD.flatten(0, 1))
    return heads.view(query_BNLD.shape)


def attention_weights(query_BNLD: Tensor, key_BNLD: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax [B, N, L, L2] of queries times keys."""
    with mkl():
        score = torch.bmm(query_BNLD.flatten(0, 1) * query_BNLD.shape[-1] ** -0.5, key_BNLD.flatten(0, 1).mT)
    score = score.view(*query_BNLD.shape[:3], -1)
    return (score if mask is None else score + mask).softmax(dim=-1)


class MklAttention(torch.autograd.Function):
    """torch's fused attention and its gradient, both computed by MKL."""

    @staticmethod
    def forward(ctx: Any, query_BNLD: Tensor, key_BNLD: Tensor, value_BNLD: Tensor, mask: Tensor | None) -> Tensor:
        mask = None if mask is None else mask.to(query_BNLD.dtype)
        with mkl():
            heads_BNLD, log_sum_BNL = flash(query_BNLD, key_BNLD, value_BNLD, attn_mask=mask)
        ctx.save_for_backward(query_BNLD, key_BNLD, value_BNLD, mask, heads_BNLD, log_sum_BNL)
        heads: Tensor = heads_BNLD
        return heads

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query_BNLD, key_BNLD, value_BNLD, mask, heads_BNLD, log_sum_BNL = ctx.saved_tensors
        inputs = query_BNLD, key_BNLD, value_BNLD
        with mkl():
            gradients = flash_backward(grads[0], *inputs, heads_BNLD, log_sum_BNL, 0.0, False, attn_mask=mask)
        return *(g if needed else None for g, needed in zip(gradients, ctx.needs_input_grad, strict=False)), None


@contextmanager
def mkl() -> Iterator[None]:
    """Compute float32 products by MKL in this context."""
    before = SWITCH.fp32_precision
    SWITCH.fp32_precision = "ieee"
    try:
        yield
    finally:
        SWITCH.fp32_precision = before
