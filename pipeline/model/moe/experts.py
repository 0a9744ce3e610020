"""E ReLU feed-forward networks over rows sorted by expert: y = relu(x · wi[e]) · wo[e].

E experts, X rows of all experts, Y rows of one expert, N experts of one block, M model, H hidden.
With a fixed capacity all experts have Y = X / E rows (equal blocks). Without one (dropless), rows are ragged, and their
counts per expert are given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pipeline.model.moe.ragged_experts import can_group, counts_on_host, feed_forward_grouped, feed_forward_ragged
from pipeline.model.precision import compute_dtype
from pipeline.model.projection import project_each

Compute = Callable[[Tensor, Tensor | None], Tensor]
Exchange = Callable[[Compute, Tensor, Tensor | None], Tensor]

# Elements of one block. They limit the memory besides the results, and keep the cast weights of a block in cache.
BLOCK_HIDDEN = 1 << 22
BLOCK_CAST = 1 << 20


class Experts(nn.Module):
    """The feed-forward networks of E experts. Parameters are left uninitialised.

    exchange: set by expert parallelism, else None. It takes `compute`, which applies the experts of this process to
        rows, and the arguments of `forward`.
    """

    def __init__(self, num_experts: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.wi_EMH = nn.Parameter(torch.empty(num_experts, dim, hidden))
        self.wo_EHM = nn.Parameter(torch.empty(num_experts, hidden, dim))
        self.exchange: Exchange | None = None

    def forward(self, rows_XM: Tensor, counts_E: Tensor | None = None) -> Tensor:
        """Apply the experts to their rows [X, M], in autocast's dtype if autocast is on.

        rows_XM: sorted by expert.
        counts_E: rows per expert, int64, on any device, zeros allowed; None for equal blocks.
        Raises ValueError if E does not divide X, or if counts do not fit E or X. On a GPU in bf16 a wrong sum of counts
        is not detected, because nothing waits for the counts there.
        """
        rows_XM = rows_XM.to(compute_dtype(rows_XM))  # before rows are exchanged, because bf16 halves their bytes
        if self.exchange is not None:
            return self.exchange(self.compute, rows_XM, counts_E)
        return self.compute(rows_XM, counts_E)

    def waits(self, x: Tensor) -> bool:
        """Tell if `forward` waits for the counts of ragged rows of x. If not, it may get rows that nothing reads."""
        return self.exchange is not None or not can_group(x.device, compute_dtype(x), self.wi_EMH)

    def compute(self, rows_XM: Tensor, counts_E: Tensor | None) -> Tensor:
        """Return `forward` without the exchange, in the dtype of the rows."""
        E = len(self.wi_EMH)
        if counts_E is None and len(rows_XM) % E:
            raise ValueError(f"{len(rows_XM)} rows do not divide by {E} experts; pass counts_E for ragged rows")
        if counts_E is not None and counts_E.shape != (E,):
            raise ValueError(f"counts_E has shape {tuple(counts_E.shape)}; expected ({E},), one count per expert")
        if not len(rows_XM) and not torch.is_grad_enabled():
            return rows_XM  # no token chose an expert of this process, so no kernel needs to start
        weights = self.wi_EMH, self.wo_EHM
        if rows_XM.is_cpu:
            return feed_forward_in_blocks(rows_XM, *weights, counts_E)
        if counts_E is None:
            return feed_forward_equal(rows_XM, *weights)
        if can_group(rows_XM.device, rows_XM.dtype, self.wi_EMH):
            return feed_forward_grouped(rows_XM, *weights, counts_E)
        return feed_forward_ragged(rows_XM, *weights, counts_E)


class FeedForwardInBlocks(torch.autograd.Function):
    """All experts on the CPU, one block of experts at a time.

    Besides its results, a block needs little memory, which the next block uses again: the gradient of its hidden
    activations, and weights in the rows' dtype. Products are written into the results, without a copy.
    """

    @staticmethod
    def forward(
        ctx: Any, rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts: list[int] | None, training: bool
    ) -> Tensor:
        """Return the outputs. counts: rows per expert, None for equal blocks. training: save tensors for backward."""
        cut = ctx.cut = Cut.of(rows_XM, wi_EMH, counts)
        y_XM = torch.empty_like(rows_XM)
        hidden: list[Tensor] = []
        for x_NYM, y_NYM, wi_NMH, wo_NHM in zip(
            cut.rows(rows_XM), cut.rows(y_XM), cut.experts(wi_EMH), cut.experts(wo_EHM), strict=True
        ):
            h_NYH = torch.bmm(x_NYM, wi_NMH.to(x_NYM.dtype)).relu_()
            torch.bmm(h_NYH, wo_NHM.to(x_NYM.dtype), out=y_NYM)
            if training:
                hidden.append(h_NYH)
        ctx.save_for_backward(rows_XM, wi_EMH, wo_EHM, *hidden)
        return y_XM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows_XM, wi_EMH, wo_EHM, *hidden = ctx.saved_tensors
        need_x, need_wi, need_wo = ctx.needs_input_grad[:3]
        cut = ctx.cut
        # a gradient that nobody needs is a meta tensor, so that the blocks below can be zipped
        dx_XM, dwi_EMH, dwo_EHM = (
            torch.empty_like(t, device=None if need else "meta")
            for t, need in ((rows_XM, need_x), (wi_EMH, need_wi), (wo_EHM, need_wo))
        )
        row_blocks = map(cut.rows, (rows_XM, grads[0].contiguous(), dx_XM))
        expert_blocks = map(cut.experts, (wi_EMH, wo_EHM, dwi_EMH, dwo_EHM))
        for h_NYH, x_NYM, dy_NYM, dx_NYM, wi_NMH, wo_NHM, dwi_NMH, dwo_NHM in zip(
            hidden, *row_blocks, *expert_blocks, strict=True
        ):
            if need_wo:
                multiply_into(dwo_NHM, h_NYH.mT, dy_NYM)
            if not (need_x or need_wi):
                continue
            dh_NYH = torch.bmm(dy_NYM, wo_NHM.to(dy_NYM.dtype).mT)
            torch.ops.aten.threshold_backward.grad_input(dh_NYH, h_NYH, 0, grad_input=dh_NYH)
            if need_wi:
                multiply_into(dwi_NMH, x_NYM.mT, dh_NYH)
            if need_x:
                torch.bmm(dh_NYH, wi_NMH.to(dh_NYH.dtype).mT, out=dx_NYM)
        return dx_XM if need_x else None, dwi_EMH if need_wi else None, dwo_EHM if need_wo else None, None, None


@dataclass(frozen=True)
class Cut:
    """The division of rows and experts into blocks: of N experts, or of one expert if experts have counts.

    num_experts: E.
    size: N, experts of a block.
    counts: rows per expert, None for equal blocks.
    """

    num_experts: int
    size: int
    counts: list[int] | None

    @classmethod
    def of(cls, rows_XM: Tensor, wi_EMH: Tensor, counts: list[int] | None) -> "Cut":
        E, M, H = wi_EMH.shape
        size = BLOCK_HIDDEN // max(1, len(rows_XM) // E * H)
        if rows_XM.dtype != wi_EMH.dtype:
            size = min(size, BLOCK_CAST // (M * H))
        return cls(E, 1 if counts is not None else max(1, min(size, E)), counts)

    def rows(self, t_XM: Tensor) -> Sequence[Tensor]:
        """Return the rows of each block as views [N, Y, M]."""
        if self.counts is not None:
            return [t_YM.unsqueeze(0) for t_YM in torch.split(t_XM, self.counts)]
        Y = len(t_XM) // self.num_experts
        return torch.split(t_XM.view(self.num_experts, Y, t_XM.shape[1]), self.size)

    def experts(self, t_EMH: Tensor) -> Sequence[Tensor]:
        """Return the weights of each block as views [N, M, H]."""
        return torch.split(t_EMH, self.size)


def feed_forward_in_blocks(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor | None) -> Tensor:
    """Apply experts to equal or ragged rows on the CPU."""
    counts = None if counts_E is None else counts_on_host(counts_E, len(rows_XM))
    if counts is not None and not torch.is_grad_enabled():
        return feed_forward_at_once(rows_XM, wi_EMH, wo_EHM, counts)
    training = torch.is_grad_enabled() and any(t.requires_grad for t in (rows_XM, wi_EMH, wo_EHM))
    y_XM: Tensor = FeedForwardInBlocks.apply(  # type: ignore[no-untyped-call]
        rows_XM.contiguous(), wi_EMH, wo_EHM, counts, training
    )
    return y_XM


def feed_forward_at_once(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts: list[int]) -> Tensor:
    """Apply experts to ragged rows, without gradient. Experts without rows cost nothing."""
    y_XM, start = torch.empty_like(rows_XM), 0
    for expert, count in enumerate(counts):
        if count:
            rows = slice(start, start + count)
            h_YH = torch.mm(rows_XM[rows], wi_EMH[expert].to(rows_XM.dtype)).relu_()
            torch.mm(h_YH, wo_EHM[expert].to(rows_XM.dtype), out=y_XM[rows])
            start += count
    return y_XM


def feed_forward_equal(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor) -> Tensor:
    """Apply experts to equal blocks in plain autograd, which can be compiled and captured."""
    rows_EYM = rows_XM.reshape(len(wi_EMH), len(rows_XM) // len(wi_EMH), rows_XM.shape[1])
    return project_each(project_each(rows_EYM, wi_EMH).relu(), wo_EHM).flatten(0, 1)


def multiply_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Write a · b into `out`, rounded to its dtype."""
    if out.dtype == a.dtype:
        torch.bmm(a, b, out=out)
    else:
        out.copy_(torch.bmm(a, b))
