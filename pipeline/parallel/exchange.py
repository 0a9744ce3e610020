"""Rows of tokens on the way to experts that are cut over processes, and back.

E experts, e experts of one process, X rows of this process's tokens, Y rows of this process's experts (in a shape with
e: of one expert), M model, P processes of the axis that cuts E. Where each process routes its own groups, two
all-to-alls per layer take rows to the experts' owners and back (GShard, section 3.2: the hand-over of a tensor cut on G
to one cut on E); where all route the same groups, each computes its experts' rows and the sum over experts becomes an
all-reduce.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Compute = Callable[[Tensor, Tensor | None], Tensor]


class AllToAll(torch.autograd.Function):
    """Exchange equal blocks of the first dimension; its gradient is the same exchange."""

    @staticmethod
    def forward(ctx: Any, blocks: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        received = torch.empty_like(blocks)
        dist.all_to_all_single(received, blocks, group=group)
        return received

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        received: Tensor = AllToAll.apply(grads[0].contiguous(), ctx.group)  # type: ignore[no-untyped-call]
        return received, None


class RaggedAllToAll(torch.autograd.Function):
    """Send `sent[p]` rows to process p and receive `received[p]` from it; its gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, rows_XM: Tensor, sent: list[int], received: list[int], group: dist.ProcessGroup) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        arrived_YM = rows_XM.new_empty(sum(received), rows_XM.shape[1])
        dist.all_to_all_single(arrived_YM, rows_XM.contiguous(), received, sent, group=group)
        return arrived_YM

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        returned: Tensor = RaggedAllToAll.apply(grads[0], ctx.received, ctx.sent, ctx.group)  # type: ignore[no-untyped-call]
        return returned, None, None, None


class Permute(torch.autograd.Function):
    """Rows in another order; `back` undoes `order`, so that the gradient is a gather too."""

    @staticmethod
    def forward(ctx: Any, rows_YM: Tensor, order_Y: Tensor, back_Y: Tensor) -> Tensor:
        ctx.save_for_backward(back_Y)
        return rows_YM.index_select(0, order_Y)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0].index_select(0, ctx.saved_tensors[0]), None, None


def exchange_rows(
    compute: Compute, rows_XM: Tensor, counts_E: Tensor | None, *, num_experts: int, group: dist.ProcessGroup
) -> Tensor:
    """Run `compute` where the experts of the rows live, and bring the results back.

    Where every expert has as many rows (counts None), two all-to-alls of fixed size; otherwise counts go first.
    """
    if counts_E is None:
        return _exchange_equal(compute, rows_XM, num_experts, group)
    P = dist.get_world_size(group)
    theirs_E = torch.empty_like(counts_E)
    dist.all_to_all_single(theirs_E, counts_E, group=group)
    theirs_Pe = theirs_E.view(P, -1)
    sent, received = counts_E.view(P, -1).sum(dim=1).tolist(), theirs_Pe.sum(dim=1).tolist()
    arrived_YM: Tensor = RaggedAllToAll.apply(rows_XM, sent, received, group)  # type: ignore[no-untyped-call]
    expert_Y = torch.arange(num_experts // P, device=rows_XM.device).repeat(P).repeat_interleave(theirs_E)
    order_Y = expert_Y.argsort(stable=True)  # arrived by process, computed by expert
    back_Y = torch.empty_like(order_Y).scatter_(0, order_Y, torch.arange(len(order_Y), device=order_Y.device))
    sorted_YM: Tensor = Permute.apply(arrived_YM, order_Y, back_Y)  # type: ignore[no-untyped-call]
    done_YM: Tensor = Permute.apply(compute(sorted_YM, theirs_Pe.sum(dim=0)), back_Y, order_Y)  # type: ignore[no-untyped-call]
    returned_XM: Tensor = RaggedAllToAll.apply(done_YM, received, sent, group)  # type: ignore[no-untyped-call]
    return returned_XM


def _exchange_equal(compute: Compute, rows_XM: Tensor, num_experts: int, group: dist.ProcessGroup) -> Tensor:
    """[E, Y, M] of this process's tokens -> [e, P·Y, M] of every process's tokens for its experts, and back."""
    P, E, M = dist.get_world_size(group), num_experts, rows_XM.shape[1]
    arrived: Tensor = AllToAll.apply(rows_XM.contiguous(), group)  # type: ignore[no-untyped-call]
    by_expert_ePYM = arrived.view(P, E // P, -1, M).transpose(0, 1)
    done_YM = compute(by_expert_ePYM.reshape(-1, M), None)
    by_process_PeYM = done_YM.view(E // P, P, -1, M).transpose(0, 1)
    returned_XM: Tensor = AllToAll.apply(by_process_PeYM.reshape(-1, M), group)  # type: ignore[no-untyped-call]
    return returned_XM


def compute_mine(compute: Compute, rows_XM: Tensor, counts_E: Tensor | None, *, rank: int, parts: int) -> Tensor:
    """Run `compute` on the rows of this process's experts, where every process has all rows; the others' are zero.

    What is combined from them is this process's share of a sum over all processes.
    """
    if counts_E is None:
        size = len(rows_XM) // parts
        sizes, mine = [rank * size, size, len(rows_XM) - (rank + 1) * size], None
    else:
        mine = counts_E.view(parts, -1)[rank]
        per_process = counts_E.view(parts, -1).sum(dim=1)
        before, own = int(per_process[:rank].sum()), int(per_process[rank])
        sizes = [before, own, len(rows_XM) - before - own]
    before_XM, mine_XM, after_XM = torch.split(rows_XM, sizes)
    return torch.cat((torch.zeros_like(before_XM), compute(mine_XM, mine), torch.zeros_like(after_XM)))
