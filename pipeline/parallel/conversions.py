"""The start and the end of a computation that is cut over processes (Mesh-TensorFlow's einsum rule).

The input is the same on all processes, and its gradient is a sum over them. The output is a sum over the processes, and
its gradient is the same on all. Megatron calls the two f and g (arXiv:1909.08053).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Enter(torch.autograd.Function):
    """Return the tensor unchanged and sum its gradient in place.

    In place is safe, because the result goes only into products and gathers. Their backward passes make new gradients,
    which no other code uses. A copy would take between a fifth and the whole of the time of a gloo all-reduce.
    """

    @staticmethod
    def forward(ctx: Any, whole: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _summed(grads[0], ctx.group), None


class Leave(torch.autograd.Function):
    """Sum the tensors of all processes in place. The gradient is passed on unchanged."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, group: dist.ProcessGroup) -> Tensor:
        if share.is_contiguous():
            ctx.mark_dirty(share)
        return _summed(share, group)

    @staticmethod
    def backward(_ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def enter(whole: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return the input of a computation of which each process of the group does a part."""
    entered: Tensor = Enter.apply(whole, group)  # type: ignore[no-untyped-call]
    return entered


def leave(share: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return the output of such a computation, the sum of all shares. Overwrites `share`."""
    left: Tensor = Leave.apply(share, group)  # type: ignore[no-untyped-call]
    return left


def _summed(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = tensor.contiguous()  # collectives need contiguous tensors
    dist.all_reduce(total, group=group)
    return total
