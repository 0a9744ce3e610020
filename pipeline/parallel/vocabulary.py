"""Embeddings and cross-entropy of a vocabulary that is cut over processes. No process has all logits of a token.

T target tokens, M model, V vocabulary, v the part of V that one process has.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.precision import at_least_float32, compute_dtype
from pipeline.model.projection import project_to_table
from pipeline.parallel.conversions import enter, leave


def look_up(tokens: Tensor, table_vM: Tensor, *, group: dist.ProcessGroup) -> Tensor:
    """Return the embeddings of tokens. Each process adds its rows of the table, and zeros for other tokens."""
    local, own = _local(tokens, len(table_vM), group)
    rows = F.embedding(local, table_vM) * own.unsqueeze(-1).to(table_vM.dtype)
    return leave(rows, group)


class CutCrossEntropy(torch.autograd.Function):
    """Compute (nll_T, smooth_T) as `SmoothedCrossEntropy` does, from this process's logits and two all-reduces."""

    @staticmethod
    def forward(ctx: Any, logits_Tv: Tensor, target_T: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
        kept_Tv, logits_Tv = logits_Tv, at_least_float32(logits_Tv)
        local_T, is_own_T = _local(target_T, logits_Tv.shape[1], group)
        largest_T = logits_Tv.amax(dim=-1)
        dist.all_reduce(largest_T, op=dist.ReduceOp.MAX, group=group)
        own_T = logits_Tv.gather(1, local_T.unsqueeze(1)).squeeze(1) * is_own_T
        exponentials_T = (logits_Tv - largest_T.unsqueeze(1)).exp_().sum(dim=-1)
        sums_3T = torch.stack((exponentials_T, own_T, logits_Tv.sum(dim=-1)))
        dist.all_reduce(sums_3T, group=group)
        log_sum_T = sums_3T[0].log() + largest_T
        ctx.vocabulary = logits_Tv.shape[1] * dist.get_world_size(group)
        ctx.save_for_backward(kept_Tv, local_T, is_own_T, log_sum_T)
        return log_sum_T - sums_3T[1], log_sum_T - sums_3T[2] / ctx.vocabulary

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits_Tv, local_T, is_own_T, log_sum_T = ctx.saved_tensors
        grad_nll_T, grad_smooth_T = grads
        grad_Tv = (logits_Tv - log_sum_T.unsqueeze(1)).exp_()
        grad_Tv.mul_((grad_nll_T + grad_smooth_T).unsqueeze(1))
        grad_Tv.sub_((grad_smooth_T / ctx.vocabulary).unsqueeze(1))
        grad_Tv.scatter_add_(1, local_T.unsqueeze(1), (-grad_nll_T * is_own_T).unsqueeze(1))
        return grad_Tv, None, None


def token_losses(
    x_TM: Tensor, table_vM: Tensor, target_T: Tensor, *, group: dist.ProcessGroup
) -> tuple[Tensor, Tensor]:
    """Return what `pipeline.model.loss.token_losses` does. x_TM: the same on all processes."""
    logits_Tv = project_to_table(enter(x_TM.to(compute_dtype(x_TM)), group), table_vM)
    nll_T, smooth_T = CutCrossEntropy.apply(logits_Tv, target_T, group)  # type: ignore[no-untyped-call]
    return nll_T, smooth_T


def _local(tokens: Tensor, size: int, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Return indices into this process's part, 0 for tokens of other parts, and a mask of its own tokens."""
    local = tokens - size * dist.get_rank(group)
    own = (local >= 0) & (local < size)
    return local.where(own, 0), own
