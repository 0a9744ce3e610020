"""Moving tokens to their experts' slots and back by gathers alone, forward and backward.

G groups, S tokens of a group, M model, E experts, C capacity, K choices of a token. A slot is one row of [E, G, C].
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.gating import Gating


@dataclass(frozen=True, kw_only=True)
class Route:
    """The two inverse maps of one gating, over flattened groups.

    slot_TK: for every token (T = G·S) and choice its slot, 0 where not kept. kept_TK: float 0 or 1.
    token_X: for every slot (X = E·G·C) its token; an empty slot names token 0, and nothing ever reads its output.
    weight_X: combine weight of every slot, 0 where empty.
    """

    slot_TK: Tensor
    kept_TK: Tensor
    token_X: Tensor
    weight_X: Tensor

    @classmethod
    def of(cls, gating: Gating, capacity: int) -> "Route":
        """capacity: at least the gating's own; larger where ranks agreed on the largest load."""
        G, S, K = gating.expert_GSK.shape
        num_slots = gating.num_experts * G * capacity
        group_G11 = torch.arange(G, device=gating.expert_GSK.device).view(G, 1, 1)
        slot_TK = ((gating.expert_GSK * G + group_G11) * capacity + gating.position_GSK).view(G * S, K)
        kept_TK = gating.kept_GSK.view(G * S, K)
        slot_TK = slot_TK.masked_fill(~kept_TK, 0)
        target_TK = slot_TK.masked_fill(~kept_TK, num_slots)  # what is not kept goes to a slot that is cut off
        token_TK = torch.arange(G * S, device=slot_TK.device).unsqueeze(1).expand(G * S, K)
        token_X = slot_TK.new_zeros(num_slots + 1).scatter_(0, target_TK.flatten(), token_TK.flatten())[:-1]
        weight = gating.weight_GSK.detach().flatten()
        weight_X = weight.new_zeros(num_slots + 1).scatter_(0, target_TK.flatten(), weight)[:-1]
        return cls(slot_TK=slot_TK, kept_TK=kept_TK.to(weight.dtype), token_X=token_X, weight_X=weight_X)


class Dispatch(torch.autograd.Function):
    """x_TM -> slots_XM: every slot gets a copy of its token."""

    @staticmethod
    def forward(ctx: Any, x_TM: Tensor, slot_TK: Tensor, kept_TK: Tensor, token_X: Tensor) -> Tensor:
        ctx.save_for_backward(slot_TK, kept_TK)
        return x_TM.index_select(0, token_X)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        slot_TK, kept_TK = ctx.saved_tensors
        return gather_sum(grads[0], slot_TK, kept_TK), None, None, None


class Combine(torch.autograd.Function):
    """slots_XM -> y_TM: every token gets the weighted sum of its slots; zero where it kept none."""

    @staticmethod
    def forward(
        ctx: Any,
        slots_XM: Tensor,
        weight_TK: Tensor,
        slot_TK: Tensor,
        kept_TK: Tensor,
        token_X: Tensor,
        weight_X: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(slots_XM, slot_TK, kept_TK, token_X, weight_X)
        return gather_sum(slots_XM, slot_TK, weight_TK)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        slots_XM, slot_TK, kept_TK, token_X, weight_X = ctx.saved_tensors
        grad_TM = grads[0]
        grad_XM = grad_TM.index_select(0, token_X)
        # <grad, slot> per slot first: the same rows serve the weights' gradient and the slots'
        dot_X = torch.linalg.vecdot(grad_XM, slots_XM).to(kept_TK.dtype)
        grad_weight_TK = dot_X[slot_TK] * kept_TK
        grad_XM.mul_(weight_X.to(grad_XM.dtype).unsqueeze(1))
        return grad_XM, grad_weight_TK, None, None, None, None


def gather_sum(rows_XM: Tensor, index_TK: Tensor, weight_TK: Tensor) -> Tensor:
    """y_TM = sum_k weight_TK · rows_XM[index_TK], without the [T, K, M] in between."""
    return F.embedding_bag(index_TK, rows_XM, per_sample_weights=weight_TK.to(rows_XM.dtype), mode="sum")


def dispatch(x_TM: Tensor, route: Route) -> Tensor:
    """Slots [X, M] of tokens [T, M]."""
    slots_XM: Tensor = Dispatch.apply(x_TM, route.slot_TK, route.kept_TK, route.token_X)  # type: ignore[no-untyped-call]
    return slots_XM


def combine(slots_XM: Tensor, weight_TK: Tensor, route: Route) -> Tensor:
    """Tokens [T, M] of slots [X, M]; weight_TK carries the router's gradient."""
    y_TM: Tensor = Combine.apply(slots_XM, weight_TK, route.slot_TK, route.kept_TK, route.token_X, route.weight_X)  # type: ignore[no-untyped-call]
    return y_TM
