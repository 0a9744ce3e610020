"""The two ends of a computation that is cut over processes (Mesh-TensorFlow's einsum rule and its gradient).

What goes in is the same on all of them, and its gradient is a sum over them; what comes out is a sum over them, and its
gradient is the same on all. In Megatron's words f and g (arXiv:1909.08053).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Enter(torch.autograd.Function):
    """The tensor itself; its gradient is summed in place.

    That is safe because what is entered goes into products and gathers alone: their backward passes make gradients of
    their own, which nobody else has. A copy would cost between a fifth of a gloo all-reduce and as much as one.
    """

    @staticmethod
    def forward(ctx: Any, whole: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _summed(grads[0], ctx.group), None


class Leave(torch.autograd.Function):
    """The sum of every process's tensor, in its place; its gradient is passed on."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, group: dist.ProcessGroup) -> Tensor:
        if share.is_contiguous():
            ctx.mark_dirty(share)
        return _summed(share, group)

    @staticmethod
    def backward(_ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def enter(whole: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Into a computation of which each process of the group does a part."""
    entered: Tensor = Enter.apply(whole, group)  # type: ignore[no-untyped-call]
    return entered


def leave(share: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Out of it: the sum of all parts. Overwrites `share`."""
    left: Tensor = Leave.apply(share, group)  # type: ignore[no-untyped-call]
    return left


def _summed(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = tensor.contiguous()  # collectives take no others
    dist.all_reduce(total, group=group)
    return total
