"""The libraries for float32 products that our training uses, for its peers too.

On some processors our processes use oneDNN for products and MKL for attention (`pipeline.jobs.matmul`). By default
torch uses MKL for both, and a comparison with a peer would measure this difference.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.jobs.matmul import choose_matmul
from pipeline.model.fused_attention import attend_on_cpu, mkl

fused_attention = F.scaled_dot_product_attention
plain_matmul = torch.matmul


def use_our_libraries(cpuinfo: str | None = None) -> str:
    """Choose the libraries for the processor as `pipeline` does, and return that of large products: `onednn` or `mkl`.

    With oneDNN, MKL still does fused attention and products of two four-dimensional tensors, which belong to attention.
    Call this once, before the peer's model is built.

    cpuinfo: the text of /proc/cpuinfo, by default of this machine.
    """
    library = choose_matmul(cpuinfo)
    if library == "onednn":
        F.scaled_dot_product_attention = attention_by_mkl  # type: ignore[assignment]
        torch.matmul = matmul_by_mkl  # type: ignore[assignment]
    return library


def attention_by_mkl(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """Compute `F.scaled_dot_product_attention` by MKL, forward and backward, with the options that the peers use."""
    if dropout_p or options.get("scale") is not None or options.get("enable_gqa"):
        return fused_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros(attn_mask.shape).masked_fill_(~attn_mask, -torch.inf)
    return attend_on_cpu(query, key, value, attn_mask)


class MatmulByMkl(torch.autograd.Function):
    """The product of two tensors with equal leading dimensions, and its gradients, by MKL."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        with mkl():
            return plain_matmul(a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        with mkl():
            return plain_matmul(grads[0], b.mT), plain_matmul(a.mT, grads[0])


def matmul_by_mkl(a: Tensor, b: Tensor, **options: Any) -> Tensor:
    """Compute `torch.matmul`, by MKL if both tensors have four dimensions, of which the leading ones are equal."""
    if a.dim() == b.dim() == 4 and a.shape[:2] == b.shape[:2] and not options:
        product: Tensor = MatmulByMkl.apply(a, b)  # type: ignore[no-untyped-call]
        return product
    return plain_matmul(a, b, **options)
