"""Gates in which every expert chooses its tokens: expert choice, and strictly balanced gating.

G groups, S tokens of a group, E experts, C capacity, X rows of experts in the order of experts, T tokens (G·S), V real
ones, P pools that experts choose from. All in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.model.choices import at_least_float32, check_sizes
from pipeline.model.gate_config import capacity_of, exact_factor
from pipeline.model.route import Route, selected_route


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What every expert takes, and with what weight.

    token_X: token of each row, over flattened groups. filled_X: False for an empty row. weight_X: combine weights,
    float32, 0 where empty. expert_X: whose row it is. valid_GS: real tokens. capacity: rows per expert and group in
    the order [E, G, C], or None where each expert has its own number. losses: as in `Gating`.
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
        """Rows that experts took; none is ever lost (scalar, int64)."""
        return self.filled_X.sum()

    kept = asked

    @property
    def unserved(self) -> Tensor:
        """Real tokens that no expert took (scalar, int64)."""
        taken_T = torch.zeros(self.valid_GS.numel() + 1, dtype=torch.bool, device=self.token_X.device)
        taken_T[self.token_X.masked_fill(~self.filled_X, self.valid_GS.numel())] = True
        return (self.valid_GS.flatten() & ~taken_T[:-1]).sum()

    def usage(self, pair_GS: Tensor, num_pairs: int) -> Tensor:
        """How many tokens of each language pair each expert took: int64 [P, E]."""
        cell_X = pair_GS.flatten()[self.token_X] * self.num_experts + self.expert_X
        cells = torch.zeros(num_pairs * self.num_experts, dtype=torch.int64, device=cell_X.device)
        cells.scatter_add_(0, cell_X, self.filled_X.long())
        return cells.view(num_pairs, self.num_experts)

    def masked(self, keep: Tensor) -> "Selection":
        """The same with weights times `keep`, shaped as weight_X."""
        return replace(self, weight_X=self.weight_X * keep)

    @property
    def weights(self) -> Tensor:
        """Combine weights of every row."""
        return self.weight_X

    def route(self) -> Route:
        """Fixed rows where there is a capacity, else as many as were taken."""
        counts = None if self.capacity is not None else torch.bincount(self.expert_X, minlength=self.num_experts)
        return selected_route(
            self.token_X, self.filled_X, self.weight_X, num_tokens=self.valid_GS.numel(), counts_E=counts
        )

    def dense(self) -> Tensor:
        """Combine weights of GShard's Algorithm 2, [G, S, E, C]; without capacity C is the largest load."""
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
    """Expert choice (arXiv:2202.09368, section 3.2): every expert takes the best tokens of a pool of n.

    k = n · capacity_factor / E of them, rounded up, by softmax over experts; that score is the weight, not normalised.
    Ties go to the earlier token. No loss: the gate balances itself.
    sentence_GS: None is training, where the real tokens of a group are one pool and rows have the fixed capacity
    ceil(capacity_factor · S / E). Else evaluation: a number for each sentence of a group, any where padding; every
    sentence is a pool, so that alone, packed and batched it gets the same experts. Reads counts back from the device.
    Raises ValueError on fewer than 2 experts and on a capacity_factor outside (0, E].
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
    """Strictly balanced gating (Shazeer et al. 2017, arXiv:1701.06538, appendix F): softmax gates X times a mask,
    normalised over the experts that took the token.

    training: the mask is batchwise, each expert's m = k · n / E best of the n real tokens of a group, m rounded up, so
    rows have the fixed capacity ceil(k · S / E). Else it is X > threshold_E, and a token may have no expert, or all;
    reads counts back from the device. Ties go to the earlier token.
    Loss `threshold`, in training: L_batchwise (equation 20), sum over tokens and experts of (M_threshold - M_batchwise)
    · (X - T), over n: the mean over tokens of what is printed as a sum. Masks are constants; X and T both learn by it.
    Raises ValueError on fewer than 2 experts and on k outside 1..E.
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
    """Mask [G, S, E] of the number_G real tokens of each group with each expert's largest scores; ties go to the
    earlier token. number_G: at most the capacity and the real tokens.

    By the smallest score that is taken, which costs a small part of a stable sort.
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
    """What a mask of real tokens says, the rows of an expert in the order of tokens.

    capacity: at least what any expert takes of a group. None gives each expert the rows it needs, and reads counts
    back from the device.
    """
    G, S, E = mask_GSE.shape
    if capacity is None:
        expert_X, token_X = mask_GSE.flatten(0, 1).T.nonzero(as_tuple=True)
        filled_X = torch.ones_like(token_X, dtype=torch.bool)
    else:
        mask_EGS = mask_GSE.permute(2, 0, 1)
        turn_EGS = mask_EGS.cumsum(dim=-1)
        slot_EGS = (turn_EGS - 1).masked_fill(~mask_EGS, capacity)  # what is not taken goes to a row that is cut off
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
    """Mask of the tokens that each expert takes where every sentence is a pool of its own."""
    G, S, E = score_GSE.shape
    token_V = valid_GS.flatten().nonzero().squeeze(1)
    _, sentence_V = torch.unique(sentence_GS.flatten()[token_V], return_inverse=True)
    # two groups may give the same number to different sentences
    group_V = token_V // S
    _, pool_V, length_P = torch.unique(group_V * (G * S) + sentence_V, return_inverse=True, return_counts=True)
    number_P = _fair_share(length_P, capacity_factor, E)
    start_P = length_P.cumsum(0) - length_P
    # sorted by pool, then by score: a stable sort by score first, by pool after it
    by_score_EV = score_GSE.detach().flatten(0, 1)[token_V].T.argsort(dim=1, descending=True, stable=True)
    order_EV = by_score_EV.gather(1, pool_V[by_score_EV].argsort(dim=1, stable=True))
    sorted_V = pool_V.sort().values  # the same for every expert
    taken_V = torch.arange(len(token_V), device=token_V.device) - start_P[sorted_V] < number_P[sorted_V]
    mask_EV = torch.zeros_like(order_EV, dtype=torch.bool).scatter(1, order_EV, taken_V.expand_as(order_EV))
    mask_TE = torch.zeros(G * S, E, dtype=torch.bool, device=token_V.device)
    mask_TE[token_V] = mask_EV.T
    return mask_TE.view(G, S, E)


def _fair_share(length_P: Tensor, capacity_factor: float, num_experts: int) -> Tensor:
    """Count the tokens that each expert takes of pools of these lengths: n · capacity_factor / E, rounded up exactly as
    in `capacity_of`, but 0 of an empty pool."""
    share = exact_factor(capacity_factor) / num_experts
    return -(-length_P * share.numerator // share.denominator)


def _masked_softmax(logits_GSE: Tensor, mask_GSE: Tensor) -> Tensor:
    """softmax · mask, normalised over the mask; zero, and no NaN in the gradient, where a token's mask is empty.

    As a softmax of what the mask leaves, since the product may underflow to 0/0."""
    empty_GS1 = ~mask_GSE.any(dim=-1, keepdim=True)
    return logits_GSE.masked_fill(~(mask_GSE | empty_GS1), -torch.inf).softmax(dim=-1) * mask_GSE
