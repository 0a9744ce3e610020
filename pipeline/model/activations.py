"""The activations between the products of a feed-forward network.

One projection x · wi is followed by ReLU. Two projections are a gated network, SwiGLU (arXiv:2002.05202):
silu(x · wi) ⊙ (x · wu). All functions work element by element, on tensors of any equal shape.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def activate(projection: Tensor, gated: Tensor | None = None) -> Tensor:
    """Return the hidden units, made of x · wi and, in a gated network, of x · wu. May overwrite its arguments."""
    if gated is None:
        return projection.relu_()
    if torch.compiler.is_compiling():
        return F.silu(projection) * gated
    hidden: Tensor = SwiGLU.apply(projection, gated)  # type: ignore[no-untyped-call]
    return hidden


class SwiGLU(torch.autograd.Function):
    """Computes silu(projection) ⊙ gated, and keeps no more than the two, where autograd would keep silu too."""

    @staticmethod
    def forward(ctx: Any, projection: Tensor, gated: Tensor) -> Tensor:
        ctx.save_for_backward(projection, gated)
        return F.silu(projection).mul_(gated)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        projection, gated = ctx.saved_tensors
        return swiglu_gradients(grads[0], projection, gated, F.silu(projection))


def swiglu_gradients(dhidden: Tensor, projection: Tensor, gated: Tensor, silu: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of both projections. Overwrites `silu`, which is silu(projection)."""
    dprojection = torch.ops.aten.silu_backward(dhidden * gated, projection)
    return dprojection, silu.mul_(dhidden)
