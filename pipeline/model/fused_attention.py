"""Fused attention beside oneDNN's float32 matmuls.

torch's fused attention on a CPU multiplies small blocks, which MKL does four to six times faster than oneDNN in
float32, and in float32 more than twice as fast as in bfloat16. Where the process has chosen oneDNN for its large
products (`pipeline.parallel.matmul`), attention takes MKL and float32, backward too.
B rows, N heads, L queries, D head dim.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# oneDNN's own switch, which torch's annotations do not know; setting it away from "ieee" also turns oneDNN on
SWITCH: Any = cast(Any, torch.backends.mkldnn).matmul


def attend(query_BNLD: Tensor, key_BNLD: Tensor, value_BNLD: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention [B, N, L, D]; mask: additive, without gradient."""
    if not query_BNLD.is_cpu or SWITCH.fp32_precision == "ieee":
        return F.scaled_dot_product_attention(query_BNLD, key_BNLD, value_BNLD, attn_mask=mask)
    if query_BNLD.dtype is torch.float64:
        heads_BNLD: Tensor = MklAttention.apply(query_BNLD, key_BNLD, value_BNLD, mask)  # type: ignore[no-untyped-call]
        return heads_BNLD
    with torch.autocast("cpu", enabled=False):
        single = [t.float() for t in (query_BNLD, key_BNLD, value_BNLD)]
        heads_BNLD = MklAttention.apply(*single, None if mask is None else mask.float())  # type: ignore[no-untyped-call]
    return heads_BNLD.to(query_BNLD.dtype)


class MklAttention(torch.autograd.Function):
    """The fused operation and its own gradient, both under MKL."""

    @staticmethod
    def forward(ctx: Any, query_BNLD: Tensor, key_BNLD: Tensor, value_BNLD: Tensor, mask: Tensor | None) -> Tensor:
        inputs = [t.detach().requires_grad_(t.requires_grad) for t in (query_BNLD, key_BNLD, value_BNLD)]
        with mkl(), torch.set_grad_enabled(any(t.requires_grad for t in inputs)):
            heads_BNLD = F.scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], attn_mask=mask)
        ctx.inputs, ctx.heads = inputs, heads_BNLD
        return heads_BNLD.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [t for t in ctx.inputs if t.requires_grad]
        with mkl():
            found = iter(torch.autograd.grad(ctx.heads, wanted, grads[0], retain_graph=True))
        return *(next(found) if t.requires_grad else None for t in ctx.inputs), None


@contextmanager
def mkl() -> Iterator[None]:
    """float32 products by MKL inside."""
    before = SWITCH.fp32_precision
    SWITCH.fp32_precision = "ieee"
    try:
        yield
    finally:
        SWITCH.fp32_precision = before
