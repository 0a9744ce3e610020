"""Move rows of tokens to experts that are cut over processes, and back.

E experts, e experts of one process, X rows of this process's tokens, Y rows of this process's experts (in a shape with
e: of one expert), M model, P processes of the axis that cuts E.

If each process routes its own groups, two all-to-alls per layer move rows to the owners of the experts and back. They
turn a tensor that is cut on G into one that is cut on E (GShard, section 3.2). If all processes route the same groups,
each computes the rows of its experts, and the sum over experts becomes an all-reduce.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Compute = Callable[[Tensor, Tensor | None], Tensor]


class AllToAll(torch.autograd.Function):
    """Exchange equal blocks of the first dimension. The gradient makes the same exchange."""

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
    """Send `sent[p]` rows to process p and receive `received[p]` rows from it. The gradient goes back."""

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
    """Put rows in another order. `back_Y` undoes `order_Y`, so the gradient is a gather too."""

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
    """Run `compute` on the processes that have the experts of the rows, and bring the results back.

    counts_E: rows of each expert, which are exchanged first; None if all experts have equally many rows.
    """
    if counts_E is None:
        return _exchange_equal(compute, rows_XM, num_experts, group)
    P = dist.get_world_size(group)
    received_E = torch.empty_like(counts_E)
    dist.all_to_all_single(received_E, counts_E, group=group)
    received_Pe = received_E.view(P, -1)
    sent, received = counts_E.view(P, -1).sum(dim=1).tolist(), received_Pe.sum(dim=1).tolist()
    arrived_YM: Tensor = RaggedAllToAll.apply(rows_XM, sent, received, group)  # type: ignore[no-untyped-call]
    expert_Y = torch.arange(num_experts // P, device=rows_XM.device).repeat(P).repeat_interleave(received_E)
    order_Y = expert_Y.argsort(stable=True)  # rows arrive by process and are computed by expert
    back_Y = torch.empty_like(order_Y).scatter_(0, order_Y, torch.arange(len(order_Y), device=order_Y.device))
    sorted_YM: Tensor = Permute.apply(arrived_YM, order_Y, back_Y)  # type: ignore[no-untyped-call]
    computed_YM: Tensor = Permute.apply(compute(sorted_YM, received_Pe.sum(dim=0)), back_Y, order_Y)  # type: ignore[no-untyped-call]
    returned_XM: Tensor = RaggedAllToAll.apply(computed_YM, received, sent, group)  # type: ignore[no-untyped-call]
    return returned_XM


def _exchange_equal(compute: Compute, rows_XM: Tensor, num_experts: int, group: dist.ProcessGroup) -> Tensor:
    """Exchange [E, Y, M] of this process's tokens for [e, P·Y, M] of all tokens for its experts, and back."""
    P, E, M = dist.get_world_size(group), num_experts, rows_XM.shape[1]
    arrived: Tensor = AllToAll.apply(rows_XM.contiguous(), group)  # type: ignore[no-untyped-call]
    by_expert_ePYM = arrived.view(P, E // P, -1, M).transpose(0, 1)
    computed_YM = compute(by_expert_ePYM.reshape(-1, M), None)
    by_process_PeYM = computed_YM.view(E // P, P, -1, M).transpose(0, 1)
    returned_XM: Tensor = AllToAll.apply(by_process_PeYM.reshape(-1, M), group)  # type: ignore[no-untyped-call]
    return returned_XM


def compute_local(compute: Compute, rows_XM: Tensor, counts_E: Tensor | None, *, rank: int, parts: int) -> Tensor:
    """Run `compute` on the rows of this process's experts, if every process has all rows. Other rows become zero.

    The layer's output is then this process's share of a sum over the `parts` processes.
    """
    if counts_E is None:
        size = len(rows_XM) // parts
        sizes, counts_e = [rank * size, size, len(rows_XM) - (rank + 1) * size], None
    else:
        counts_e = counts_E.view(parts, -1)[rank]
        per_process = counts_E.view(parts, -1).sum(dim=1)
        before, own = int(per_process[:rank].sum()), int(per_process[rank])
        sizes = [before, own, len(rows_XM) - before - own]
    before_XM, own_YM, after_XM = torch.split(rows_XM, sizes)
    return torch.cat((torch.zeros_like(before_XM), compute(own_YM, counts_e), torch.zeros_like(after_XM)))
