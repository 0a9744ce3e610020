"""Cutting a finished single-device model over the mesh: experts over the `expert` axis.

E experts, e experts of one process, Y slots of one expert (G·C), M model, P processes of the expert axis. The router
and everything dense stays whole. Each process routes its own groups; two all-to-alls per layer take slots to the
experts' owners and back (GShard, section 3.2: the hand-over of a tensor cut on G to one cut on E).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipeline.model.moe import Experts
from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh


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


def slots_to_owners(slots_EYM: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[E, Y, M] of this process's tokens -> [e, P·Y, M] of every process's tokens for this process's experts."""
    P = dist.get_world_size(group)
    E, Y, M = slots_EYM.shape
    received: Tensor = AllToAll.apply(slots_EYM.contiguous(), group)  # type: ignore[no-untyped-call]
    return received.view(P, E // P, Y, M).transpose(0, 1).reshape(E // P, P * Y, M)


def slots_to_origins(slots_eYM: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The way back: [e, P·Y, M] -> [E, Y, M]."""
    P = dist.get_world_size(group)
    e, PY, M = slots_eYM.shape
    blocks = slots_eYM.view(e, P, PY // P, M).transpose(0, 1).contiguous()
    received: Tensor = AllToAll.apply(blocks, group)  # type: ignore[no-untyped-call]
    return received.view(P * e, PY // P, M)


def cut_experts(model: Transformer, mesh: Mesh) -> None:
    """Keep this process's experts of every MoE layer and put the collectives in; a mesh of one expert process changes
    nothing."""
    P = mesh.size("expert")
    if P == 1:
        return
    group = mesh.group("expert")
    rank = dist.get_rank(group)
    for moe in model.moe_layers():
        if moe.num_experts % P:
            raise ValueError(f"model.moe.num_experts={moe.num_experts} is not divisible by runtime.ep={P}")
        for name, parameter in list(moe.experts.named_parameters()):
            mine = parameter.detach().chunk(P)[rank].clone()
            setattr(moe.experts, name, nn.Parameter(mine))
        _hang_exchange(moe.experts, group)
        moe.agree_on_capacity = lambda capacity: largest(capacity, group, mesh.device)


def expert_parameters(model: Transformer) -> set[str]:
    """Names of the parameters whose first dimension is experts."""
    return {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, Experts)
        for name, _ in module.named_parameters()
    }


def largest(number: int, group: dist.ProcessGroup, device: torch.device) -> int:
    """The largest of the processes' numbers; idle processes join."""
    tensor = torch.tensor(number, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
    return int(tensor)


def _hang_exchange(experts: Experts, group: dist.ProcessGroup) -> None:
    def before(_module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        return (slots_to_owners(args[0], group),)

    def after(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        return slots_to_origins(output, group)

    experts.register_forward_pre_hook(before)
    experts.register_forward_hook(after)
