"""Gates in which every token chooses its experts: GShard's top-2, Switch's top-1, and top-k.

G groups, S tokens of a group, E experts, C capacity, K choices of a token, N = K·S choices of a group, X = E·C slots of
a group, P language pairs. All computations are in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.model.moe.gates.choices import Choices, balance_loss, check_capacity, choose
from pipeline.model.moe.route import Route, fixed_route, ragged_route


@dataclass(frozen=True, kw_only=True)
class Gating:
    """The experts of every token, and their weights.

    expert_GSK: chosen experts, int64.
    asked_GSK: True for choices that want a slot, so not for padding and dropped second choices.
    position_GSK: slot in the expert's buffer, defined for choices that want a slot. None if no capacity was asked for.
    kept_GSK: True for choices that want a slot and are within capacity.
    weight_GSK: combine weights, float32, zero for choices that are not kept.
    valid_GS: True for real tokens.
    capacity: slots per expert and group; None is no capacity.
    losses: auxiliary losses by name, each a tensor [G] with 0 for an empty group. `balance` is line 13 of GShard's
        Algorithm 1 as printed, which is 1/E² when uniform.
    """

    expert_GSK: Tensor
    asked_GSK: Tensor
    position_GSK: Tensor | None
    kept_GSK: Tensor
    weight_GSK: Tensor
    valid_GS: Tensor
    capacity: int | None
    num_experts: int
    losses: Mapping[str, Tensor]

    @property
    def aux_loss(self) -> Tensor:
        """The mean of line 13 of Algorithm 1 over the non-empty groups (scalar)."""
        return mean_over_groups(self.losses["balance"], self.valid_GS)

    @property
    def asked(self) -> Tensor:
        """Number of choices that wanted a slot (scalar, int64)."""
        return self.asked_GSK.sum()

    @property
    def kept(self) -> Tensor:
        """Number of choices that got a slot (scalar, int64)."""
        return self.kept_GSK.sum()

    @property
    def unserved(self) -> Tensor:
        """Number of real tokens without an expert, which the residual connection carries alone (scalar, int64)."""
        return (self.valid_GS & ~self.kept_GSK.any(dim=-1)).sum()

    def usage(self, pair_GS: Tensor, num_pairs: int) -> Tensor:
        """Count the choices of each expert by tokens of each language pair, before capacity: int64 [P, E]."""
        cell_GSK = pair_GS.unsqueeze(-1) * self.num_experts + self.expert_GSK
        cells = torch.zeros(num_pairs * self.num_experts, dtype=torch.int64, device=cell_GSK.device)
        cells.scatter_add_(0, cell_GSK.flatten(), self.asked_GSK.flatten().long())
        return cells.view(num_pairs, self.num_experts)

    def masked(self, keep: Tensor) -> "Gating":
        """Return this decision with weights times `keep`, which has the shape of weight_GSK."""
        return replace(self, weight_GSK=self.weight_GSK * keep)

    @property
    def weights(self) -> Tensor:
        """Combine weights of all choices."""
        return self.weight_GSK

    def route(self, *, cut: bool = True) -> Route:
        """Return the route to the experts: fixed rows with a capacity, one row per kept choice without.

        cut: see `ragged_route`.
        """
        if self.capacity is None or self.position_GSK is None:
            return ragged_route(self.expert_GSK, self.kept_GSK, self.weight_GSK, num_experts=self.num_experts, cut=cut)
        return fixed_route(
            self.expert_GSK,
            self.position_GSK,
            self.kept_GSK,
            self.weight_GSK,
            num_experts=self.num_experts,
            capacity=self.capacity,
        )

    def dense(self) -> Tensor:
        """Return the combine weights of Algorithm 2, [G, S, E, C], for tests and small E.

        Without a capacity C is the largest load.
        """
        G, S, _ = self.expert_GSK.shape
        capacity, position_GSK = self.capacity, self.position_GSK
        if position_GSK is None:
            position_GSK = positions(self.expert_GSK, self.kept_GSK, self.num_experts)
        if capacity is None:
            capacity = int(position_GSK.masked_fill(~self.kept_GSK, 0).max()) + 1
        slot_GSK = (self.expert_GSK * capacity + position_GSK).masked_fill(~self.kept_GSK, 0)
        combine_GSX = self.weight_GSK.new_zeros(G, S, self.num_experts * capacity)
        combine_GSX = combine_GSX.scatter_add(2, slot_GSK, self.weight_GSK)
        return combine_GSX.view(G, S, self.num_experts, capacity)


def top2_gating(
    logits_GSE: Tensor,
    capacity: int | None,
    *,
    valid_GS: Tensor,
    rnd_GS: Tensor | None = None,
    count_dropped_second: bool = False,
    prioritized: bool = False,
) -> Gating:
    """Compute top-2 gating of a batch of groups in float32 (GShard, arXiv:2006.16668, Algorithm 1).

    logits_GSE: router logits.
    capacity: slots per expert and group; None drops nothing.
    valid_GS: False for padding, which takes no slot and no share of a mean.
    rnd_GS: uniform(0, 1) draws. The second choice is kept if 2·g2 > rnd. None keeps all of them (evaluation).
    count_dropped_second: a second choice that the draw dropped still takes a slot, as line 22 is printed. By default it
        takes none, because section 2.2 says that dropping conserves capacity.
    prioritized: slots go to tokens in the order of falling first gates (arXiv:2106.05974).
    Raises ValueError if there are fewer than 2 experts or the capacity is below 1.
    """
    return top2_of_choices(
        choose(logits_GSE, 2, valid_GS),
        capacity,
        valid_GS=valid_GS,
        rnd_GS=rnd_GS,
        count_dropped_second=count_dropped_second,
        prioritized=prioritized,
    )


def top2_of_choices(
    choices: Choices,
    capacity: int | None,
    *,
    valid_GS: Tensor,
    rnd_GS: Tensor | None = None,
    count_dropped_second: bool = False,
    prioritized: bool = False,
) -> Gating:
    """Compute `top2_gating` after the softmax."""
    check_capacity(capacity)
    expert_GSK, gate_GSK = choices.expert_GSK, choices.gate_GSK
    weight_GSK = shares(gate_GSK)
    asked_GSK = counted_GSK = valid_GS.unsqueeze(-1).expand_as(expert_GSK)
    if rnd_GS is not None:
        drawn_GS = 2.0 * weight_GSK[..., 1].detach() > rnd_GS
        asked_GSK = torch.stack((valid_GS, valid_GS & drawn_GS), dim=-1)
        counted_GSK = counted_GSK if count_dropped_second else asked_GSK
    return place(
        expert_GSK,
        weight_GSK,
        asked_GSK=asked_GSK,
        counted_GSK=counted_GSK,
        valid_GS=valid_GS,
        capacity=capacity,
        num_experts=choices.num_experts,
        priority_GS=gate_GSK[..., 0].detach() if prioritized else None,
        losses={"balance": balance_loss(choices, valid_GS)},
    )


def top1_gating(logits_GSE: Tensor, capacity: int | None, *, valid_GS: Tensor, prioritized: bool = False) -> Gating:
    """Compute top-1 gating (Switch Transformer, arXiv:2101.03961, section 2.2). The gate itself is the weight.

    Arguments and errors are those of `top2_gating`. The paper's equation 4 is E² times the `balance` loss here.
    """
    choices = choose(logits_GSE, 1, valid_GS)
    return top1_of_choices(choices, capacity, valid_GS=valid_GS, prioritized=prioritized)


def top1_of_choices(choices: Choices, capacity: int | None, *, valid_GS: Tensor, prioritized: bool = False) -> Gating:
    """Compute `top1_gating` after the softmax."""
    check_capacity(capacity)
    return place(
        choices.expert_GSK,
        choices.gate_GSK,
        valid_GS=valid_GS,
        capacity=capacity,
        num_experts=choices.num_experts,
        priority_GS=choices.gate_GSK[..., 0].detach() if prioritized else None,
        losses={"balance": balance_loss(choices, valid_GS)},
    )


def dropless_gating(logits_GSE: Tensor, k: int, *, valid_GS: Tensor, normalize: bool = True) -> Gating:
    """Compute top-k gating without a capacity (MegaBlocks, arXiv:2211.15841).

    The balance loss is GShard's, over first choices. Raises ValueError if k exceeds the experts.
    """
    return dropless_of_choices(choose(logits_GSE, k, valid_GS), valid_GS=valid_GS, normalize=normalize)


def dropless_of_choices(choices: Choices, *, valid_GS: Tensor, normalize: bool = True) -> Gating:
    """Compute `dropless_gating` after the softmax."""
    return top_k_of_choices(choices, None, valid_GS=valid_GS, normalize=normalize, counted=1)


def top_k_of_choices(
    choices: Choices, capacity: int | None, *, valid_GS: Tensor, normalize: bool = True, counted: int | None = None
) -> Gating:
    """Compute top-k gating of scored choices.

    capacity: slots per expert and group; None drops nothing.
    normalize: weights are gates divided by their sum over the k choices; otherwise they are the gates.
    counted: number of best choices that count in the balance loss; None is all k of them.
    """
    check_capacity(capacity)
    return place(
        choices.expert_GSK,
        shares(choices.gate_GSK) if normalize else choices.gate_GSK,
        valid_GS=valid_GS,
        capacity=capacity,
        num_experts=choices.num_experts,
        losses={"balance": balance_loss(choices, valid_GS, counted)},
    )


def shares(gate_GSK: Tensor) -> Tensor:
    """Return combine weights: gates divided by their sum.

    This happens before capacity, so a token that loses one expert keeps the weight of the other.
    """
    return gate_GSK / gate_GSK.sum(dim=-1, keepdim=True)


def place(
    expert_GSK: Tensor,
    weight_GSK: Tensor,
    *,
    valid_GS: Tensor,
    capacity: int | None,
    num_experts: int,
    losses: Mapping[str, Tensor],
    asked_GSK: Tensor | None = None,
    counted_GSK: Tensor | None = None,
    priority_GS: Tensor | None = None,
) -> Gating:
    """Give slots to choices: all first choices of a group before any second one, in the order of tokens.

    asked_GSK: choices that may be served; None means those of all real tokens.
    counted_GSK: choices that take a place in the queue; None means those that may be served.
    priority_GS: the queue is in the order of falling priority instead. The earlier token wins a tie.
    """
    kept_GSK = asked_GSK = valid_GS.unsqueeze(-1).expand_as(expert_GSK) if asked_GSK is None else asked_GSK
    position_GSK = None
    if capacity is not None:  # only then it matters who comes first
        counted_GSK = asked_GSK if counted_GSK is None else counted_GSK
        position_GSK = positions(expert_GSK, counted_GSK, num_experts, priority_GS)
        kept_GSK = asked_GSK & (position_GSK < capacity)
    return Gating(
        expert_GSK=expert_GSK,
        asked_GSK=asked_GSK,
        position_GSK=position_GSK,
        kept_GSK=kept_GSK,
        weight_GSK=weight_GSK * kept_GSK,
        valid_GS=valid_GS,
        capacity=capacity,
        num_experts=num_experts,
        losses=losses,
    )


def positions(expert_GSK: Tensor, counted_GSK: Tensor, num_experts: int, priority_GS: Tensor | None = None) -> Tensor:
    """Return the position [G, S, K] of each counted choice in its expert's queue. Arguments are those of `place`."""
    G, S, K = expert_GSK.shape
    queue_GKS = expert_GSK.masked_fill(~counted_GSK, num_experts).transpose(1, 2)
    if priority_GS is None:
        return _places(queue_GKS.flatten(1), num_experts).view(G, K, S).transpose(1, 2)
    turn_GKS = priority_GS.argsort(dim=1, descending=True, stable=True).unsqueeze(1).expand(G, K, S)
    place_GKS = _places(queue_GKS.gather(2, turn_GKS).flatten(1), num_experts).view(G, K, S)
    return torch.empty_like(place_GKS).scatter_(2, turn_GKS, place_GKS).transpose(1, 2)


def _places(queue_GN: Tensor, num_experts: int) -> Tensor:
    """Count for every entry of a queue the earlier entries with the same expert. A sort avoids a tensor [N, E]."""
    G, N = queue_GN.shape
    sorted_GN, order_GN = queue_GN.sort(dim=1, stable=True)
    expert_GE = torch.arange(num_experts + 1, device=queue_GN.device).expand(G, -1).contiguous()
    start_GE = torch.searchsorted(sorted_GN, expert_GE)
    place_GN = torch.arange(N, device=queue_GN.device) - start_GE.gather(1, sorted_GN)
    return torch.empty_like(queue_GN).scatter_(1, order_GN, place_GN)


def mean_over_groups(loss_G: Tensor, valid_GS: Tensor) -> Tensor:
    """Return the mean over the groups that have a real token (scalar)."""
    return loss_G.sum() / valid_GS.any(dim=1).sum().clamp(min=1)
