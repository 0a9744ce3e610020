"""E ReLU feed-forward networks over rows sorted by expert: y = relu(x · wi[e]) · wo[e].

E experts, X rows of all experts, Y rows of one expert, N experts of one block, M model, H hidden. Equal blocks (fixed
capacity) hold Y = X / E rows per expert; ragged rows (dropless) come with their counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Compute = Callable[[Tensor, Tensor | None], Tensor]
Exchange = Callable[[Compute, Tensor, Tensor | None], Tensor]

# Elements of one block: they bound what lives beside the results, and let weights cast for a block stay in cache.
BLOCK_HIDDEN = 1 << 22
BLOCK_CAST = 1 << 20


class Experts(nn.Module):
    """E feed-forward networks side by side; parameters are left uninitialised.

    exchange: hung in by expert parallelism. It gets `compute`, which applies this process's experts to the rows it is
    given, with the arguments of `forward`.
    """

    def __init__(self, num_experts: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.wi_EMH = nn.Parameter(torch.empty(num_experts, dim, hidden))
        self.wo_EHM = nn.Parameter(torch.empty(num_experts, hidden, dim))
        self.exchange: Exchange | None = None

    def forward(self, rows_XM: Tensor, counts_E: Tensor | None = None) -> Tensor:
        """Rows [X, M] -> [X, M], in autocast's dtype where it is on.

        rows_XM: sorted by expert. counts_E: int64 rows per expert on any device, zeros allowed; None for equal blocks.
        Raises ValueError where X does not divide by E, or counts do not fit E or X; the last is not seen on a GPU in
        bf16, where nothing waits for the counts.
        """
        rows_XM = rows_XM.to(compute_dtype(rows_XM))  # before they travel: bf16 is half of it
        if self.exchange is not None:
            return self.exchange(self.compute, rows_XM, counts_E)
        return self.compute(rows_XM, counts_E)

    def compute(self, rows_XM: Tensor, counts_E: Tensor | None) -> Tensor:
        """`forward` without the exchange, in the dtype of the rows."""
        E, M, H = self.wi_EMH.shape
        if counts_E is None and len(rows_XM) % E:
            raise ValueError(f"{len(rows_XM)} rows do not divide by {E} experts; pass counts_E for ragged rows")
        if counts_E is not None and counts_E.shape != (E,):
            raise ValueError(f"counts_E has shape {tuple(counts_E.shape)}; expected ({E},), one count per expert")
        if not len(rows_XM) and not torch.is_grad_enabled():
            return rows_XM  # of a process whose experts nobody asks: no kernel is started for nothing
        weights = self.wi_EMH, self.wo_EHM
        if rows_XM.is_cpu:
            return feed_forward_in_blocks(rows_XM, *weights, counts_E)
        if counts_E is None:
            return feed_forward_equal(rows_XM, *weights)
        if rows_XM.dtype == torch.bfloat16 and M % 8 == 0 and H % 8 == 0:  # grouped_mm wants rows of 16 bytes
            return feed_forward_grouped(rows_XM, *weights, counts_E)
        return feed_forward_ragged(rows_XM, *weights, counts_E)


class FeedForward(torch.autograd.Function):
    """All experts on the CPU, a block of experts at a time.

    What a block needs besides its results is small and soon reused: the gradient of its hidden activations, and weights
    in the rows' dtype. Products go straight to their place in the results, which autograd takes over without a copy.
    """

    @staticmethod
    def forward(
        ctx: Any, rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts: list[int] | None, training: bool
    ) -> Tensor:
        """counts: rows per expert, None for equal blocks. training: keep what backward needs."""
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
        # an unneeded gradient has no memory (meta), so that the blocks below line up
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
    """How rows and experts fall into blocks: N experts each, or one expert each where they have counts of their own."""

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
        """Views [N, Y, M]."""
        if self.counts is not None:
            return [t_YM.unsqueeze(0) for t_YM in torch.split(t_XM, self.counts)]
        Y = len(t_XM) // self.num_experts
        return torch.split(t_XM.view(self.num_experts, Y, t_XM.shape[1]), self.size)

    def experts(self, t_EMH: Tensor) -> Sequence[Tensor]:
        """Views [N, M, H]."""
        return torch.split(t_EMH, self.size)


def feed_forward_in_blocks(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor | None) -> Tensor:
    """Any rows, on the CPU."""
    counts = None if counts_E is None else counts_on_host(counts_E, len(rows_XM))
    if counts is not None and not torch.is_grad_enabled():
        return feed_forward_at_once(rows_XM, wi_EMH, wo_EHM, counts)
    training = torch.is_grad_enabled() and any(t.requires_grad for t in (rows_XM, wi_EMH, wo_EHM))
    y_XM: Tensor = FeedForward.apply(rows_XM.contiguous(), wi_EMH, wo_EHM, counts, training)  # type: ignore[no-untyped-call]
    return y_XM


def feed_forward_at_once(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts: list[int]) -> Tensor:
    """Ragged rows without gradient; experts without rows cost nothing."""
    y_XM, start = torch.empty_like(rows_XM), 0
    for expert, count in enumerate(counts):
        if count:
            rows = slice(start, start + count)
            h_YH = torch.mm(rows_XM[rows], wi_EMH[expert].to(rows_XM.dtype)).relu_()
            torch.mm(h_YH, wo_EHM[expert].to(rows_XM.dtype), out=y_XM[rows])
            start += count
    return y_XM


def feed_forward_equal(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor) -> Tensor:
    """Equal blocks in plain autograd, so that it can be compiled and captured."""
    rows_EYM = rows_XM.reshape(len(wi_EMH), len(rows_XM) // len(wi_EMH), rows_XM.shape[1])
    return torch.bmm(torch.bmm(rows_EYM, wi_EMH).relu(), wo_EHM).flatten(0, 1)


def feed_forward_grouped(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor) -> Tensor:
    """Ragged rows in bfloat16, without waiting for the counts; M and H are multiples of 8."""
    end_E = counts_E.to(rows_XM.device).cumsum(0, dtype=torch.int32)
    h_XH = F.grouped_mm(rows_XM, wi_EMH.to(rows_XM.dtype), offs=end_E).relu()
    return F.grouped_mm(h_XH, wo_EHM.to(rows_XM.dtype), offs=end_E)


def feed_forward_ragged(rows_XM: Tensor, wi_EMH: Tensor, wo_EHM: Tensor, counts_E: Tensor) -> Tensor:
    """Ragged rows, one expert after the other."""
    rows = torch.split(rows_XM, counts_on_host(counts_E, len(rows_XM)))
    experts = zip(
        rows, wi_EMH.unbind(), wo_EHM.unbind(), strict=True
    )  # unbind: W[e] would have E gradients of full size
    return torch.cat([(x_YM @ wi_MH).relu() @ wo_HM for x_YM, wi_MH, wo_HM in experts])


def compute_dtype(rows_XM: Tensor) -> torch.dtype:
    """What a Linear would compute in: autocast's dtype where it is on, but float64 stays."""
    device = rows_XM.device.type
    if rows_XM.dtype == torch.float64 or not torch.amp.is_autocast_available(device):
        return rows_XM.dtype
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else rows_XM.dtype


def counts_on_host(counts_E: Tensor, num_rows: int) -> list[int]:
    """Raises ValueError where counts are negative or their sum is not `num_rows`."""
    counts: list[int] = counts_E.tolist()
    if min(counts) < 0 or sum(counts) != num_rows:
        raise ValueError(f"counts_E={counts} must be at least 0 and sum to the {num_rows} rows")
    return counts


def multiply_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """out = a · b, rounded to the dtype of `out` where that differs."""
    if out.dtype == a.dtype:
        torch.bmm(a, b, out=out)
    else:
        out.copy_(torch.bmm(a, b))
