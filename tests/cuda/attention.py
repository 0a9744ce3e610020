"""The fused attention that PyTorch takes on a GPU when it gets a mask, as two operations of the impostor.

PyTorch calls its kernels without a way to intercept them, so the choice it makes before them is repeated here: the
conversions of autocast, and a mask whose rows are no multiples of 8 long is copied into longer ones.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

MASK_ALIGNMENT = 8  # elements
FUSED = (torch.float32, torch.bfloat16, torch.float16)  # for others PyTorch takes plain products


def probabilities(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax in float32. A row that sees nothing is NaN, as it may be on a GPU."""
    score = query.float() @ key.float().mT / math.sqrt(query.shape[-1])
    return (score if mask is None else score + mask.float()).softmax(dim=-1)


@torch.library.custom_op("impostor::attention", mutates_args=())
def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return the heads, summed in float32 and rounded once, as a fused kernel does."""
    return (probabilities(query, key, mask) @ value.float()).to(query.dtype)


@attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return torch.empty_like(query)


@torch.library.custom_op("impostor::attention_backward", mutates_args=())
def attention_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    weight, gradient = probabilities(query, key, mask), gradient.float()
    by_weight = gradient @ value.float().mT
    by_score = weight * (by_weight - (by_weight * weight).sum(dim=-1, keepdim=True)) / math.sqrt(query.shape[-1])
    gradients = by_score @ key.float(), by_score.mT @ query.float(), weight.mT @ gradient
    dq, dk, dv = (g.to(query.dtype) for g in gradients)
    return dq, dk, dv


@attention_backward.register_fake
def _(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        ctx.save_for_backward(query, key, value, mask)
        return torch.ops.impostor.attention(query, key, value, mask)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *torch.ops.impostor.attention_backward(grads[0], *ctx.saved_tensors), None


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Return torch's function of this name for tensors of the impostor. Other arguments have no kernel here."""
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = (t.to(dtype) for t in (query, key, value))
        attn_mask = attn_mask if attn_mask is None else attn_mask.to(dtype)
    dtypes = {t.dtype for t in (query, key, value)} | ({attn_mask.dtype} if attn_mask is not None else set())
    if len(dtypes) > 1:
        raise RuntimeError(f"attention of one dtype is expected, got {sorted(map(str, dtypes))}")
    if attn_mask is not None:
        L2 = attn_mask.shape[-1]
        if L2 % MASK_ALIGNMENT:
            attn_mask = F.pad(attn_mask, (0, -L2 % MASK_ALIGNMENT))[..., :L2]
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
    heads: Tensor = _Fused.apply(query, key, value, attn_mask)
    return heads
