"""E feed-forward networks over rows sorted by expert: y = relu(x · wi[e]) · wo[e], or gated by a third matrix wu[e].

E experts, X rows of all experts, Y rows of one expert, N experts of one block, M model, H hidden. Biases are
[E, 1, H] and [E, 1, M], with a 1 in the place of rows.
With a fixed capacity all experts have Y = X / E rows (equal blocks). Without one (dropless), rows are ragged, and their
counts per expert are given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pipeline.model.activations import activate, swiglu_gradients
from pipeline.model.config import Activation
from pipeline.model.int8 import feed_forward_in_8_bits
from pipeline.model.moe.ragged_experts import (
    can_group,
    counts_on_host,
    feed_forward_grouped,
    feed_forward_ragged,
    inner_weights,
)
from pipeline.model.precision import compute_dtype
from pipeline.model.projection import in_8_bits, project_each

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

    zero_initialized = frozenset({"bi_E1H", "bo_E1M"})

    def __init__(
        self, num_experts: int, dim: int, hidden: int, activation: Activation = "relu", *, biases: bool = False
    ) -> None:
        super().__init__()
        self.wi_EMH = nn.Parameter(torch.empty(num_experts, dim, hidden))
        self.wu_EMH = nn.Parameter(torch.empty(num_experts, dim, hidden)) if activation == "swiglu" else None
        self.wo_EHM = nn.Parameter(torch.empty(num_experts, hidden, dim))
        self.bi_E1H = nn.Parameter(torch.empty(num_experts, 1, hidden)) if biases else None
        self.bo_E1M = nn.Parameter(torch.empty(num_experts, 1, dim)) if biases else None
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
        biased = self.bi_E1H is not None
        return biased or self.exchange is not None or not can_group(x.device, compute_dtype(x), self.wi_EMH)

    def compute(self, rows_XM: Tensor, counts_E: Tensor | None) -> Tensor:
        """Return `forward` without the exchange, in the dtype of the rows."""
        E = len(self.wi_EMH)
        if counts_E is None and len(rows_XM) % E:
            raise ValueError(f"{len(rows_XM)} rows do not divide by {E} experts; pass counts_E for ragged rows")
        if counts_E is not None and counts_E.shape != (E,):
            raise ValueError(f"counts_E has shape {tuple(counts_E.shape)}; expected ({E},), one count per expert")
        if not len(rows_XM) and not torch.is_grad_enabled():
            return rows_XM  # no token chose an expert of this process, so no kernel needs to start
        wi_EMH, wo_EHM, wu_EMH = self.wi_EMH, self.wo_EHM, self.wu_EMH
        if in_8_bits(wi_EMH) is not None:
            counts = [len(rows_XM) // E] * E if counts_E is None else counts_on_host(counts_E, len(rows_XM))
            inner, outer = in_8_bits(wi_EMH), in_8_bits(wo_EHM)
            return feed_forward_in_8_bits(rows_XM, inner, outer, counts, self.bi_E1H, self.bo_E1M)
        if self.bi_E1H is not None and self.bo_E1M is not None:
            counts = [len(rows_XM) // E] * E if counts_E is None else counts_on_host(counts_E, len(rows_XM))
            return feed_forward_with_biases(rows_XM, wi_EMH, self.bi_E1H, wo_EHM, self.bo_E1M, counts)
        if rows_XM.is_cpu:
            return feed_forward_in_blocks(rows_XM, wi_EMH, wo_EHM, counts_E, wu_EMH)
        if counts_E is None:
            return feed_forward_equal(rows_XM, wi_EMH, wo_EHM, wu_EMH)
        if can_group(rows_XM.device, rows_XM.dtype, wi_EMH):
            return feed_forward_grouped(rows_XM, wi_EMH, wo_EHM, counts_E, wu_EMH)
        return feed_forward_ragged(rows_XM, wi_EMH, wo_EHM, counts_E, wu_EMH)


class FeedForwardInBlocks(torch.autograd.Function):
    """All experts on the CPU, one block of experts at a time.

    Besides its results, a block needs little memory, which the next block uses again: the gradient of its hidden
    activations, and weights in the rows' dtype. Products are written into the results, without a copy. Gated experts
    keep both projections, and backward computes their hidden activations again.
    """

    @staticmethod
    def forward(
        ctx: Any, rows_XM: Tensor, counts: list[int] | None, training: bool, wo_EHM: Tensor, *inner_EMH: Tensor
    ) -> Tensor:
        """Return the outputs.

        counts: rows per expert, None for equal blocks.
        training: save tensors for backward.
        inner_EMH: wi, and wu of gated experts.
        """
        cut = ctx.cut = Cut.of(rows_XM, wo_EHM, counts)
        y_XM = torch.empty_like(rows_XM)
        kept: list[Tensor] = []  # ReLU writes its result into the projection
        for x_NYM, y_NYM, wo_NHM, inner_NMH in zip(
            cut.rows(rows_XM), cut.rows(y_XM), cut.experts(wo_EHM), cut.tuples(inner_EMH), strict=True
        ):
            projections_NYH = [torch.bmm(x_NYM, w_NMH.to(x_NYM.dtype)) for w_NMH in inner_NMH]
            torch.bmm(activate(*projections_NYH), wo_NHM.to(x_NYM.dtype), out=y_NYM)
            if training:
                kept += projections_NYH
        ctx.save_for_backward(rows_XM, wo_EHM, *inner_EMH, *kept)
        return y_XM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        need_x, _, _, need_wo, *need_inner = ctx.needs_input_grad
        num_inner, cut = len(need_inner), ctx.cut
        rows_XM, wo_EHM, *saved = ctx.saved_tensors
        inner_EMH, kept = saved[:num_inner], saved[num_inner:]
        # a gradient that nobody needs is a meta tensor, so that the blocks below can be zipped
        dx_XM, dwo_EHM, *dinner_EMH = (
            torch.empty_like(t, device=None if need else "meta")
            for t, need in zip((rows_XM, wo_EHM, *inner_EMH), (need_x, need_wo, *need_inner), strict=True)
        )
        row_blocks = map(cut.rows, (rows_XM, grads[0].contiguous(), dx_XM))
        expert_blocks = *map(cut.experts, (wo_EHM, dwo_EHM)), cut.tuples(inner_EMH), cut.tuples(dinner_EMH)
        projections = (kept[start : start + num_inner] for start in range(0, len(kept), num_inner))
        for projections_NYH, x_NYM, dy_NYM, dx_NYM, wo_NHM, dwo_NHM, inner_NMH, dinner_NMH in zip(
            projections, *row_blocks, *expert_blocks, strict=True
        ):
            silu_NYH = F.silu(projections_NYH[0]) if num_inner > 1 else None
            if need_wo:
                h_NYH = projections_NYH[0] if silu_NYH is None else silu_NYH * projections_NYH[1]
                multiply_into(dwo_NHM, h_NYH.mT, dy_NYM)
            if not (need_x or any(need_inner)):
                continue
            dh_NYH = torch.bmm(dy_NYM, wo_NHM.to(dy_NYM.dtype).mT)
            if silu_NYH is None:
                torch.ops.aten.threshold_backward.grad_input(dh_NYH, *projections_NYH, 0, grad_input=dh_NYH)
                gradients: tuple[Tensor, ...] = (dh_NYH,)
            else:
                gradients = swiglu_gradients(dh_NYH, projections_NYH[0], projections_NYH[1], silu_NYH)
            for number, (d_NYH, w_NMH, dw_NMH) in enumerate(zip(gradients, inner_NMH, dinner_NMH, strict=True)):
                if need_inner[number]:
                    multiply_into(dw_NMH, x_NYM.mT, d_NYH)
                if need_x and number == 0:
                    torch.bmm(d_NYH, w_NMH.to(d_NYH.dtype).mT, out=dx_NYM)
                elif need_x:
                    torch.baddbmm(dx_NYM, d_NYH, w_NMH.to(d_NYH.dtype).mT, out=dx_NYM)
        dinner = (d_EMH if need else None for d_EMH, need in zip(dinner_EMH, need_inner, strict=True))
        return dx_XM if need_x else None, None, None, dwo_EHM if need_wo else None, *dinner


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
    def of(cls, rows_XM: Tensor, wo_EHM: Tensor, counts: list[int] | None) -> "Cut":
        E, H, M = wo_EHM.shape
        size = BLOCK_HIDDEN // max(1, len(rows_XM) // E * H)
        if rows_XM.dtype != wo_EHM.dtype:
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

    def tuples(self, tensors_EMH: Sequence[Tensor]) -> Sequence[tuple[Tensor, ...]]:
        """Return the weights of each block, of several tensors together."""
        return list(zip(*map(self.experts, tensors_EMH), strict=True))


def feed_forward_in_blocks(
    rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor | None, wu_EMH: Tensor | None = None
) -> Tensor:
    """Apply experts to equal or ragged rows on the CPU."""
    counts = None if counts_E is None else counts_on_host(counts_E, len(rows_XM))
    inner_EMH = inner_weights(wi_EMH, wu_EMH)
    if counts is not None and not torch.is_grad_enabled():
        return feed_forward_at_once(rows_XM, inner_EMH, wo_EHM, counts)
    training = torch.is_grad_enabled() and any(t.requires_grad for t in (rows_XM, wo_EHM, *inner_EMH))
    y_XM: Tensor = FeedForwardInBlocks.apply(  # type: ignore[no-untyped-call]
        rows_XM.contiguous(), counts, training, wo_EHM, *inner_EMH
    )
    return y_XM


def feed_forward_at_once(rows_XM: Tensor, inner_EMH: Sequence[Tensor], wo_EHM: Tensor, counts: Sequence[int]) -> Tensor:
    """Apply experts to ragged rows, without gradient. Experts without rows cost nothing."""
    y_XM, start = torch.empty_like(rows_XM), 0
    for expert, count in enumerate(counts):
        if count:
            rows = slice(start, start + count)
            h_YH = activate(*(torch.mm(rows_XM[rows], w_EMH[expert].to(rows_XM.dtype)) for w_EMH in inner_EMH))
            torch.mm(h_YH, wo_EHM[expert].to(rows_XM.dtype), out=y_XM[rows])
            start += count
    return y_XM


def feed_forward_with_biases(
    rows_XM: Tensor, wi_EMH: Tensor, bi_E1H: Tensor, wo_EHM: Tensor, bo_E1M: Tensor, counts: Sequence[int]
) -> Tensor:
    """Return relu(x · wi[e] + bi[e]) · wo[e] + bo[e] of rows sorted by expert, on any device.

    counts: rows per expert.
    """
    weights = ([part.to(rows_XM.dtype) for part in weight.unbind()] for weight in (wi_EMH, bi_E1H, wo_EHM, bo_E1M))
    outputs = [
        (x_YM @ wi_MH + bi_1H).relu() @ wo_HM + bo_1M
        for x_YM, wi_MH, bi_1H, wo_HM, bo_1M in zip(torch.split(rows_XM, list(counts)), *weights, strict=True)
        if len(x_YM) or torch.is_grad_enabled()  # without rows, training alone needs the product: its gradient is zero
    ]
    return torch.cat(outputs)


def feed_forward_equal(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, wu_EMH: Tensor | None = None) -> Tensor:
    """Apply experts to equal blocks in plain autograd, which can be compiled and captured."""
    rows_EYM = rows_XM.reshape(len(wi_EMH), len(rows_XM) // len(wi_EMH), rows_XM.shape[1])
    h_EYH = activate(*(project_each(rows_EYM, w_EMH) for w_EMH in inner_weights(wi_EMH, wu_EMH)))
    return project_each(h_EYH, wo_EHM).flatten(0, 1)


def multiply_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Write a · b into `out`, rounded to its dtype."""
    if out.dtype == a.dtype:
        torch.bmm(a, b, out=out)
    else:
        out.copy_(torch.bmm(a, b))
