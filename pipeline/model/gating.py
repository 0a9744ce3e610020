"""Top-2 gating (GShard, arXiv:2006.16668, Algorithm 1).

G groups, S tokens of a group, E experts, C capacity, K choices of a token (2).
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Gating:
    """Where every token of every group goes, and with what weight.

    expert_GSK: chosen experts, int64. position_GSK: slot in the expert's buffer, meaningful where kept_GSK.
    weight_GSK: combine weights, float32, zero where not kept. capacity: slots per expert and group.
    aux_loss_G: line 13 of Algorithm 1 as printed, 1/E² when uniform, 0 for an empty group.
    first_load_GE: tokens whose first choice is the expert, also those past capacity. valid_GS: real tokens.
    """

    expert_GSK: Tensor
    position_GSK: Tensor
    weight_GSK: Tensor
    kept_GSK: Tensor
    valid_GS: Tensor
    aux_loss_G: Tensor
    first_load_GE: Tensor
    capacity: int
    num_experts: int

    @property
    def aux_loss(self) -> Tensor:
        """Line 13 of Algorithm 1, mean over the non-empty groups (scalar)."""
        nonempty = self.valid_GS.any(dim=1).sum().clamp(min=1)
        return self.aux_loss_G.sum() / nonempty

    @property
    def dropped_first(self) -> Tensor:
        """Real tokens that lost their first choice to a full expert (scalar, int64)."""
        return (self.valid_GS & ~self.kept_GSK[..., 0]).sum()

    def dense(self) -> Tensor:
        """Combine weights of Algorithm 2, [G, S, E, C]; for tests and small E."""
        G, S, _ = self.expert_GSK.shape
        combine_GSX = self.weight_GSK.new_zeros(G, S, self.num_experts * self.capacity)
        slot_GSK = (self.expert_GSK * self.capacity + self.position_GSK).masked_fill(~self.kept_GSK, 0)
        combine_GSX.scatter_add_(2, slot_GSK, self.weight_GSK)
        return combine_GSX.view(G, S, self.num_experts, self.capacity)


def top2_gating(
    logits_GSE: Tensor,
    capacity: int | None,
    *,
    valid_GS: Tensor,
    rnd_GS: Tensor | None = None,
    count_dropped_second: bool = False,
) -> Gating:
    """Top-2 gating of a batch of groups, in float32 (GShard, Algorithm 1).

    logits_GSE: router logits. capacity: slots per expert and group; None drops nothing and reports the largest load.
    valid_GS: False for padding, which takes no slot and no share of a mean.
    rnd_GS: uniform(0, 1) draws; the second choice is kept where 2·g2 > rnd. None keeps all of them (evaluation).
    count_dropped_second: a second choice that the draw dropped still takes a slot, as line 22 is printed; section
    2.2 says that dropping conserves capacity, so by default it does not.
    """
    E = logits_GSE.shape[-1]
    if E < 2:
        raise ValueError(f"top-2 gating needs at least 2 experts, got {E}")
    if capacity is not None and capacity < 1:
        raise ValueError(f"capacity={capacity} would drop every token; it must be at least 1")
    gates_GSE = at_least_float32(logits_GSE).softmax(dim=-1)
    g1_GS, e1_GS = gates_GSE.max(dim=-1)  # the lower index wins a tie
    first_GSE = _one_hot(e1_GS, E)
    g2_GS, e2_GS = gates_GSE.masked_fill(first_GSE, -1.0).max(dim=-1)
    both_GS = g1_GS + g2_GS
    # before capacity: who loses one expert keeps the other's weight
    w1_GS, w2_GS = g1_GS / both_GS, g2_GS / both_GS

    drawn_GS = valid_GS if rnd_GS is None else valid_GS & (2.0 * w2_GS.detach() > rnd_GS)
    first_GSE = first_GSE & valid_GS.unsqueeze(-1)
    counting_GS = valid_GS if count_dropped_second else drawn_GS
    second_GSE = _one_hot(e2_GS, E) & counting_GS.unsqueeze(-1)
    place1_GSE, place2_GSE = _running_count(first_GSE), _running_count(second_GSE)
    first_load_GE = place1_GSE[:, -1]
    p1_GS = place1_GSE.gather(2, e1_GS.unsqueeze(-1)).squeeze(-1) - 1
    p2_GS = (place2_GSE + first_load_GE.unsqueeze(1)).gather(2, e2_GS.unsqueeze(-1)).squeeze(-1) - 1
    if capacity is None:
        capacity = max(1, int((first_load_GE + place2_GSE[:, -1]).max()))
    kept_GSK = torch.stack((valid_GS & (p1_GS < capacity), drawn_GS & (p2_GS < capacity)), dim=-1)

    num_tokens_G1 = valid_GS.sum(dim=1, keepdim=True).clamp(min=1)
    mean_gate_GE = (gates_GSE * valid_GS.unsqueeze(-1)).sum(dim=1) / num_tokens_G1
    aux_loss_G = (first_load_GE / num_tokens_G1 * mean_gate_GE).mean(dim=-1)
    return Gating(
        expert_GSK=torch.stack((e1_GS, e2_GS), dim=-1),
        position_GSK=torch.stack((p1_GS, p2_GS), dim=-1).long(),
        weight_GSK=torch.stack((w1_GS, w2_GS), dim=-1) * kept_GSK,
        kept_GSK=kept_GSK,
        valid_GS=valid_GS,
        aux_loss_G=aux_loss_G,
        first_load_GE=first_load_GE,
        capacity=capacity,
        num_experts=E,
    )


def at_least_float32(x: Tensor) -> Tensor:
    """float32, or float64 where it is that already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _one_hot(index_GS: Tensor, num_classes: int) -> Tensor:
    """Boolean [..., num_classes]."""
    return index_GS.unsqueeze(-1) == torch.arange(num_classes, device=index_GS.device)


def _running_count(chosen_GSE: Tensor) -> Tensor:
    """How many tokens of the group, this one included, chose the expert so far, int32."""
    return chosen_GSE.cumsum(dim=1, dtype=torch.int32)
