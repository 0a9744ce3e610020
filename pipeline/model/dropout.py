"""Dropout that costs little.

On a CPU, torch draws every zero by itself from a Mersenne twister, which takes 5 % of a step. Here one 64-bit draw
serves four elements. On a GPU, dropout and the residual connection after it are two kernels forward and one backward.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.model.precision import outside_autocast

LANES = 4  # 16-bit draws in a 64-bit draw
LEVELS = 1 << 16


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Set elements to zero with the given probability, and scale the others so that the mean stays.

    On a CPU the probability is rounded to 1/65536. Draws come from torch's default generator.
    """
    if not (training and probability and x.is_cpu):
        return F.dropout(x, probability, training)
    zeros = round(probability * LEVELS)
    draws = torch.empty(-(-x.numel() // LANES), dtype=torch.int64).random_(-(1 << 63), None)
    draws = draws.view(torch.int16)[: x.numel()].view(x.shape)
    kept = torch.ge(draws, zeros - LEVELS // 2, out=torch.empty_like(x, requires_grad=False))
    return x * kept.mul_(LEVELS / (LEVELS - zeros))


def add_dropped(x: Tensor, y: Tensor, probability: float, training: bool) -> Tensor:
    """Return x + dropout(y), the residual connection. y may have a narrower dtype than x."""
    if x.is_cpu or not (training and probability) or torch.compiler.is_compiling():
        return x + dropout(y, probability, training)
    total: Tensor = DroppedSum.apply(x, y, probability)  # type: ignore[no-untyped-call]
    return total


class DroppedSum(torch.autograd.Function):
    """Computes x + dropout(y), and rounds the gradient of y in the kernel that multiplies it by the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, probability: float) -> Tensor:
        kept = torch.empty_like(y, dtype=torch.bool).bernoulli_(1.0 - probability)
        ctx.save_for_backward(kept)
        ctx.scale, ctx.dtype = 1.0 / (1.0 - probability), y.dtype
        with outside_autocast(x):  # autocast would cast y in a kernel of its own
            return torch.addcmul(x, y, kept, value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (kept,) = ctx.saved_tensors
        dx, dy = grads[0], torch.empty_like(grads[0], dtype=ctx.dtype)
        torch.addcmul(zero(dx.dtype, dx.device), dx, kept, value=ctx.scale, out=dy)
        return dx, dy, None


@cache
def zero(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a zero that stays on the device, so that no kernel has to write it again."""
    return torch.zeros((), dtype=dtype, device=device)
