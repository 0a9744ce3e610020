"""Gates in which every expert chooses its tokens: expert choice, and strictly balanced gating.

G groups, S tokens of a group, E experts, C capacity, X rows of experts in the order of experts, T tokens (G·S), V real
tokens, P pools of tokens that experts choose from; in `usage`, P language pairs. All computations are in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.model.moe.gates.capacity import capacity_of, exact_factor
from pipeline.model.moe.gates.choices import check_sizes
from pipeline.model.moe.route import Route, count_by_expert, selected_route
from pipeline.model.precision import at_least_float32


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The tokens that every expert takes, and their weights.

    token_X: token of each row, an index over flattened groups.
    filled_X: False for an empty row.
    weight_X: combine weights, float32, 0 for an empty row.
    expert_X: expert of each row.
    valid_GS: True for real tokens.
    capacity: rows per expert and group, in the order [E, G, C]; None if each expert has its own number of rows.
    losses: auxiliary losses as in `Gating`.
    """

    token_X: Tensor
    filled_X: Tensor
    weight_X: Tensor
    expert_X: Tensor
    valid_GS: Tensor
    capacity: int | None
    num_experts: int
    losses: Mapping[str, Tensor]

    @property
    def asked(self) -> Tensor:
        """Number of rows that experts took (scalar, int64). None of them is dropped."""
        return self.filled_X.sum()

    kept = asked

    @property
    def unserved(self) -> Tensor:
        """Number of real tokens that no expert took (scalar, int64)."""
        taken_T = torch.zeros(self.valid_GS.numel() + 1, dtype=torch.bool, device=self.token_X.device)
        taken_T[self.token_X.masked_fill(~self.filled_X, self.valid_GS.numel())] = True
        return (self.valid_GS.flatten() & ~taken_T[:-1]).sum()

    def usage(self, pair_GS: Tensor, num_pairs: int) -> Tensor:
        """Count the tokens of each language pair that each expert took: int64 [P, E]."""
        cell_X = pair_GS.flatten()[self.token_X] * self.num_experts + self.expert_X
        cells = torch.zeros(num_pairs * self.num_experts, dtype=torch.int64, device=cell_X.device)
        cells.scatter_add_(0, cell_X, self.filled_X.long())
        return cells.view(num_pairs, self.num_experts)

    def masked(self, keep: Tensor) -> "Selection":
        """Return this selection with weights times `keep`, which has the shape of weight_X."""
        return replace(self, weight_X=self.weight_X * keep)

    @property
    def weights(self) -> Tensor:
        """Combine weights of all rows."""
        return self.weight_X

    def route(self, *, cut: bool = True) -> Route:
        """Return the route to the experts: fixed rows with a capacity, one row per taken token without.

        cut: not used, because every row without a capacity is that of a taken token.
        """
        counts = None if self.capacity is not None else count_by_expert(self.expert_X, self.num_experts)
        return selected_route(
            self.token_X, self.filled_X, self.weight_X, num_tokens=self.valid_GS.numel(), counts_E=counts
        )

    def dense(self) -> Tensor:
        """Return combine weights of GShard's Algorithm 2, [G, S, E, C]. Without a capacity C is the largest load."""
        G, S = self.valid_GS.shape
        E = self.num_experts
        group_X, within_X = self.token_X // S, self.token_X % S
        if self.capacity is None:
            owner_X = group_X * E + self.expert_X
            load = torch.bincount(owner_X, minlength=G * E)
            order_X = owner_X.argsort(stable=True)
            start = (load.cumsum(0) - load)[owner_X[order_X]]
            place_X = torch.empty_like(owner_X)
            place_X[order_X] = torch.arange(len(owner_X), device=owner_X.device) - start
            capacity = max(1, int(load.max()))
        else:
            capacity = self.capacity
            place_X = torch.arange(len(self.token_X), device=self.token_X.device) % capacity
        index = (((group_X * S + within_X) * E) + self.expert_X) * capacity + place_X
        flat = self.weight_X.new_zeros(G * S * E * capacity).scatter_add(0, index, self.weight_X)
        return flat.view(G, S, E, capacity)


def expert_choice_gating(
    logits_GSE: Tensor, capacity_factor: float, *, valid_GS: Tensor, sentence_GS: Tensor | None = None
) -> Selection:
    """Compute expert choice (arXiv:2202.09368, section 3.2): every expert takes the best tokens of a pool of n.

    It takes k = n · capacity_factor / E tokens, rounded up, by softmax over experts. That score is the weight, without
    normalisation. The earlier token wins a tie. The gate has no loss, because it balances itself.
    sentence_GS: None is training. The real tokens of a group are then one pool, and rows have the fixed capacity
        ceil(capacity_factor · S / E). In evaluation it is a number for each sentence of a group, any number for
        padding. Every sentence is then a pool, so it has the same experts alone, packed and batched. This waits for
        counts from the device.
    Raises ValueError if there are fewer than 2 experts or capacity_factor lies outside (0, E].
    """
    E = check_sizes(logits_GSE, 1, None)
    if not 0 < capacity_factor <= E:
        raise ValueError(
            f"capacity_factor={capacity_factor} experts a token must be positive and at most the {E} there are"
        )
    score_GSE = at_least_float32(logits_GSE).softmax(dim=-1)
    if sentence_GS is not None:
        mask_GSE = _best_of_sentences(score_GSE, capacity_factor, valid_GS, sentence_GS)
        return selection_of_mask(mask_GSE, score_GSE, None, valid_GS=valid_GS, losses={})
    number_G = _fair_share(valid_GS.sum(dim=1), capacity_factor, E)
    capacity = capacity_of(capacity_factor, 1, valid_GS.shape[1], E)
    mask_GSE = best_tokens(score_GSE, number_G, capacity, valid_GS=valid_GS)
    return selection_of_mask(mask_GSE, score_GSE, capacity, valid_GS=valid_GS, losses={})


def balanced_gating(logits_GSE: Tensor, threshold_E: Tensor, k: int, *, valid_GS: Tensor, training: bool) -> Selection:
    """Compute strictly balanced gating (Shazeer et al. 2017, arXiv:1701.06538, appendix F).

    Weights are softmax gates X times a mask, normalised over the experts that took the token.
    training: the mask is batchwise. Each expert takes the m = k · n / E best of the n real tokens of a group, m rounded
        up, so rows have the fixed capacity ceil(k · S / E). The earlier token wins a tie. In evaluation the mask is
        X > threshold_E, so a token may have no expert or all experts. This waits for counts from the device.
    Loss `threshold`, in training: L_batchwise (equation 20), the sum over tokens and experts of (M_threshold -
    M_batchwise) · (X - T), divided by n. So it is a mean over tokens, while the paper prints a sum. Masks are
    constants, and X and T both learn by it.
    Raises ValueError if there are fewer than 2 experts or k lies outside 1..E.
    """
    E = check_sizes(logits_GSE, k, None)
    logits_GSE = at_least_float32(logits_GSE)
    gates_GSE = logits_GSE.softmax(dim=-1)
    above_GSE = (gates_GSE > threshold_E) & valid_GS.unsqueeze(-1)
    if not training:
        weight_GSE = _masked_softmax(logits_GSE, above_GSE)
        return selection_of_mask(above_GSE, weight_GSE, None, valid_GS=valid_GS, losses={})
    num_tokens_G = valid_GS.sum(dim=1)
    capacity = -(-k * valid_GS.shape[1] // E)
    taken_GSE = best_tokens(gates_GSE, -(-k * num_tokens_G // E), capacity, valid_GS=valid_GS)
    differs_GSE = above_GSE.to(gates_GSE.dtype) - taken_GSE.to(gates_GSE.dtype)
    loss_G = (differs_GSE * (gates_GSE - threshold_E)).sum(dim=(1, 2)) / num_tokens_G.clamp(min=1)
    weight_GSE = _masked_softmax(logits_GSE, taken_GSE)
    return selection_of_mask(taken_GSE, weight_GSE, capacity, valid_GS=valid_GS, losses={"threshold": loss_G})


@torch.no_grad()
def best_tokens(score_GSE: Tensor, number_G: Tensor, capacity: int, *, valid_GS: Tensor) -> Tensor:
    """Return the mask [G, S, E] of the number_G real tokens of each group with the largest scores for each expert.

    number_G: at most the capacity and the number of real tokens.
    The earlier token wins a tie. The smallest taken score decides, which is much cheaper than a stable sort.
    """
    score_GES = score_GSE.masked_fill(~valid_GS.unsqueeze(-1), -torch.inf).transpose(1, 2).contiguous()
    number_G11 = number_G.view(-1, 1, 1)
    last_G11 = (number_G11 - 1).clamp(min=0)
    lowest_GE1 = score_GES.topk(capacity).values.gather(2, last_G11.expand(-1, score_GES.shape[1], 1))
    above_GES, equal_GES = score_GES > lowest_GE1, score_GES == lowest_GE1
    left_GE1 = number_G11 - above_GES.sum(dim=-1, keepdim=True)
    return (above_GES | (equal_GES & (equal_GES.cumsum(dim=-1) <= left_GE1))).transpose(1, 2)


def selection_of_mask(
    mask_GSE: Tensor, weight_GSE: Tensor, capacity: int | None, *, valid_GS: Tensor, losses: Mapping[str, Tensor]
) -> Selection:
    """Turn a mask of real tokens into a selection. The rows of an expert are in the order of tokens.

    capacity: at least the number of tokens that an expert takes from a group. None gives each expert the rows that it
        needs, and waits for counts from the device.
    """
    G, S, E = mask_GSE.shape
    if capacity is None:
        expert_X, token_X = mask_GSE.flatten(0, 1).T.nonzero(as_tuple=True)
        filled_X = torch.ones_like(token_X, dtype=torch.bool)
    else:
        mask_EGS = mask_GSE.permute(2, 0, 1)
        turn_EGS = mask_EGS.cumsum(dim=-1)
        # tokens that are not taken write to one more row, which is cut off
        slot_EGS = (turn_EGS - 1).masked_fill(~mask_EGS, capacity)
        token_GS = torch.arange(G * S, device=mask_GSE.device).view(G, S)
        token_EGC = token_GS.new_zeros(E, G, capacity + 1).scatter_(2, slot_EGS, token_GS.expand(E, G, S))[..., :-1]
        filled_EGC = torch.arange(capacity, device=mask_GSE.device) < turn_EGS[..., -1:]
        token_X, filled_X = token_EGC.flatten(), filled_EGC.flatten()
        expert_X = torch.arange(E, device=mask_GSE.device).repeat_interleave(G * capacity)
    return Selection(
        token_X=token_X,
        filled_X=filled_X,
        weight_X=weight_GSE.flatten(0, 1)[token_X, expert_X] * filled_X,
        expert_X=expert_X,
        valid_GS=valid_GS,
        capacity=capacity,
        num_experts=E,
        losses=losses,
    )


def _best_of_sentences(score_GSE: Tensor, capacity_factor: float, valid_GS: Tensor, sentence_GS: Tensor) -> Tensor:
    """Return the mask of the tokens that each expert takes, with every sentence as a pool of its own."""
    G, S, E = score_GSE.shape
    token_V = valid_GS.flatten().nonzero().squeeze(1)
    _, sentence_V = torch.unique(sentence_GS.flatten()[token_V], return_inverse=True)
    # the group is part of the key, because two groups may give the same number to different sentences
    group_V = token_V // S
    _, pool_V, length_P = torch.unique(group_V * (G * S) + sentence_V, return_inverse=True, return_counts=True)
    number_P = _fair_share(length_P, capacity_factor, E)
    start_P = length_P.cumsum(0) - length_P
    # a stable sort by score and then one by pool sorts by pool first, by score within it
    by_score_EV = score_GSE.detach().flatten(0, 1)[token_V].T.argsort(dim=1, descending=True, stable=True)
    order_EV = by_score_EV.gather(1, pool_V[by_score_EV].argsort(dim=1, stable=True))
    sorted_V = pool_V.sort().values  # the same for every expert
    taken_V = torch.arange(len(token_V), device=token_V.device) - start_P[sorted_V] < number_P[sorted_V]
    mask_EV = torch.zeros_like(order_EV, dtype=torch.bool).scatter(1, order_EV, taken_V.expand_as(order_EV))
    mask_TE = torch.zeros(G * S, E, dtype=torch.bool, device=token_V.device)
    mask_TE[token_V] = mask_EV.T
    return mask_TE.view(G, S, E)


def _fair_share(length_P: Tensor, capacity_factor: float, num_experts: int) -> Tensor:
    """Count the tokens that each expert takes from pools of these lengths: n · capacity_factor / E, rounded up.

    The rounding is exact as in `capacity_of`, but an empty pool gives 0.
    """
    share = exact_factor(capacity_factor) / num_experts
    return -(-length_P * share.numerator // share.denominator)


def _masked_softmax(logits_GSE: Tensor, mask_GSE: Tensor) -> Tensor:
    """Return softmax · mask, normalised over the mask. An empty mask gives zero, without NaN in the gradient.

    It is computed as a softmax over the masked logits, because the product may underflow to 0/0.
    """
    empty_GS1 = ~mask_GSE.any(dim=-1, keepdim=True)
    return logits_GSE.masked_fill(~(mask_GSE | empty_GS1), -torch.inf).softmax(dim=-1) * mask_GSE
