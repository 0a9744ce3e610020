"""Gates with trainable noise: noisy top-k, and its hierarchy of two levels (Shazeer et al. 2017, arXiv:1701.06538).

G groups, S tokens of a group, E experts, K choices of a token, A groups of experts, B experts of one (E = A·B).
The paper's batch is here the real tokens of one group. All computations are in float32.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.moe.gates.choices import check_sizes, masked_sum, top_k
from pipeline.model.moe.gates.token_choice import Gating, place
from pipeline.model.precision import at_least_float32


def noisy_top_k_gating(
    logits_GSE: Tensor,
    noise_scale_GSE: Tensor,
    k: int,
    capacity: int | None,
    *,
    valid_GS: Tensor,
    noise_GSE: Tensor | None = None,
) -> Gating:
    """Compute noisy top-k gating (section 2.1): softmax over the k largest H = x·Wg + noise · softplus(x·Wnoise).

    logits_GSE: x·Wg.
    noise_scale_GSE: x·Wnoise, before the softplus.
    capacity: slots per expert and group; None is no capacity, as in the paper.
    noise_GSE: standard normal draws. None is evaluation, without noise and losses.
    Losses: `importance` is CV² of the summed weights (section 4), `load` is CV² of Load (appendix A). CV² is the
    population variance over mean², 0 for an empty group. The gradient of Load also flows through the k-th largest H.
    With k = E experts do not compete, so P = 1.
    Raises ValueError if there are fewer than 2 experts, k lies outside 1..E, or the capacity is below 1.
    """
    E = check_sizes(logits_GSE, k, capacity)
    choice = _choose(logits_GSE, noise_scale_GSE, noise_GSE, k)
    losses = {}
    if noise_GSE is not None:
        losses = {
            "importance": squared_cv(_sum_by_expert(choice.weight, choice.expert, valid_GS, E)),
            "load": squared_cv(masked_sum(choice.probability(), valid_GS)),
        }
    return place(choice.expert, choice.weight, valid_GS=valid_GS, capacity=capacity, num_experts=E, losses=losses)


def hierarchical_gating(
    primary_logits_GSA: Tensor,
    primary_scale_GSA: Tensor,
    secondary_logits_GSAB: Tensor,
    secondary_scale_GSAB: Tensor,
    k: int,
    capacity: int | None,
    *,
    valid_GS: Tensor,
    primary_noise_GSA: Tensor | None = None,
    secondary_noise_GSAB: Tensor | None = None,
) -> Gating:
    """Compute two levels of noisy top-k gates (appendix B).

    Expert j of group i is expert i·B + j of the layer, and its weight is Gprimary_i · G_i,j.
    Arguments are those of `noisy_top_k_gating`, for the gate over groups (primary) and the gates within them
    (secondary). A token has k·k choices. Those within its best group come first, so they get slots first.
    Losses: `importance` is CV² of Importance_H = sum_x Gprimary_i · G_i,j. `load` is CV² of Load_H = Load_primary,i ·
    Load_i(X_i)_j / |X_i|, 0 for an empty X_i. X_i are the real tokens that chose group i, before capacity, with those
    whose weight underflows. |X_i| is a count without gradient. The lower index wins a tie at each level.
    Raises ValueError as `noisy_top_k_gating` for each level (a group may be one expert), and if only one has noise.
    """
    G, S, A, B = secondary_logits_GSAB.shape
    check_sizes(primary_logits_GSA, k, capacity)
    if k > B:
        raise ValueError(f"k={k} choices a token need at least {k} experts in each of the {A} groups, got {B}")
    if (primary_noise_GSA is None) != (secondary_noise_GSAB is None):
        raise ValueError("hierarchical gating wants noise at both levels (training) or at neither (evaluation)")
    primary = _choose(primary_logits_GSA, primary_scale_GSA, primary_noise_GSA, k)

    def chosen_groups(value_GSAB: Tensor) -> Tensor:
        """Select the groups that a token chose, [G, S, K, B]."""
        return value_GSAB.gather(2, primary.expert.unsqueeze(-1).expand(G, S, k, B))

    secondary = _choose(
        chosen_groups(secondary_logits_GSAB),
        chosen_groups(secondary_scale_GSAB),
        None if secondary_noise_GSAB is None else chosen_groups(secondary_noise_GSAB),
        k,
    )
    expert_GSK = (primary.expert.unsqueeze(-1) * B + secondary.expert).flatten(2)
    weight_GSK = (primary.weight.unsqueeze(-1) * secondary.weight).flatten(2)
    losses = {}
    if primary_noise_GSA is not None:
        losses = {
            "importance": squared_cv(_sum_by_expert(weight_GSK, expert_GSK, valid_GS, A * B)),
            "load": squared_cv(_hierarchical_load(primary, secondary, valid_GS).flatten(1)),
        }
    return place(expert_GSK, weight_GSK, valid_GS=valid_GS, capacity=capacity, num_experts=A * B, losses=losses)


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """A gate's choice of K experts.

    expert, weight: the chosen experts and their weights, [..., K].
    logits, deviation: mean and standard deviation of H, [..., E].
    noisy: H with its noise, [..., E].
    """

    expert: Tensor
    weight: Tensor
    logits: Tensor
    deviation: Tensor
    noisy: Tensor

    def probability(self) -> Tensor:
        """Return P(x, i) [..., E], the probability that a new draw of noise i keeps expert i among the k (appendix A).

        It is Phi((x·Wg_i - kth_excluding(H, k, i)) / softplus(x·Wnoise_i)).
        """
        if self.expert.shape[-1] == self.noisy.shape[-1]:
            return torch.ones_like(self.noisy)
        # an expert among the K must beat the best expert outside, any other expert must beat the last of the K
        last = self.noisy.gather(-1, self.expert[..., -1:])
        best_of_rest = self.noisy.scatter(-1, self.expert, -torch.inf).amax(dim=-1, keepdim=True)
        rival = last.expand_as(self.noisy).scatter(-1, self.expert, best_of_rest.expand_as(self.expert))
        probability: Tensor = torch.special.ndtr((self.logits - rival) / self.deviation)
        return probability


def _choose(logits: Tensor, scale: Tensor, noise: Tensor | None, k: int) -> _Choice:
    logits = at_least_float32(logits)
    # a deviation below the resolution of H has no effect, and its underflow would make 0/0
    deviation = F.softplus(at_least_float32(scale)).clamp(min=torch.finfo(logits.dtype).eps)
    noisy = logits if noise is None else logits + noise * deviation
    expert = top_k(noisy, k)
    weight = noisy.gather(-1, expert).softmax(dim=-1)
    return _Choice(expert=expert, weight=weight, logits=logits, deviation=deviation, noisy=noisy)


def _sum_by_expert(value_GSK: Tensor, expert_GSK: Tensor, valid_GS: Tensor, num_experts: int) -> Tensor:
    """Sum the values of choices by expert over the real tokens, [G, E]."""
    value_GSK = value_GSK.masked_fill(~valid_GS.unsqueeze(-1), 0.0)
    total_GE = value_GSK.new_zeros(len(value_GSK), num_experts)
    return total_GE.scatter_add(1, expert_GSK.flatten(1), value_GSK.flatten(1))


def _hierarchical_load(primary: _Choice, secondary: _Choice, valid_GS: Tensor) -> Tensor:
    """Return Load_H, [G, A, B]. secondary: the gates within the chosen groups, [G, S, K, B]."""
    G, _, A = primary.noisy.shape
    B = secondary.noisy.shape[-1]
    within_GSKB = secondary.probability()
    expert_GSKB = primary.expert.unsqueeze(-1) * B + torch.arange(B, device=valid_GS.device)
    within_GAB = _sum_by_expert(within_GSKB.flatten(2), expert_GSKB.flatten(2), valid_GS, A * B).view(G, A, B)
    size_GA = _sum_by_expert(torch.ones_like(primary.weight), primary.expert, valid_GS, A)
    load_GA = masked_sum(primary.probability(), valid_GS)
    return (load_GA / size_GA.clamp(min=1)).unsqueeze(-1) * within_GAB


def squared_cv(total_GE: Tensor) -> Tensor:
    """Return CV² of each row: population variance over mean².

    Totals are divided by their mean first. So zeros give 0, and the smallest normal number suffices as a bound.
    """
    mean_G1 = total_GE.mean(dim=-1, keepdim=True).clamp(min=torch.finfo(total_GE.dtype).tiny)
    return (total_GE / mean_G1).var(dim=-1, correction=0)
