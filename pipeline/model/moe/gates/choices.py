"""The first part of gates that score experts: scores from the router's logits, and the best experts of each token.

G groups, S tokens of a group, E experts, K choices of a token, A nodes, B experts of a node.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.precision import at_least_float32, outside_autocast


@dataclass(frozen=True, kw_only=True)
class Choices:
    """K numbers for each token instead of E.

    expert_GSK: the experts with the largest gates, in falling order.
    gate_GSK: the gates of these experts, float32. The gates of all experts sum to 1.
    sum_GE: gates summed over the real tokens of a group.
    """

    expert_GSK: Tensor
    gate_GSK: Tensor
    sum_GE: Tensor

    @property
    def num_experts(self) -> int:
        return self.sum_GE.shape[1]


def choose(
    logits_GSE: Tensor,
    k: int,
    valid_GS: Tensor,
    *,
    sigmoid: bool = False,
    bias_E: Tensor | None = None,
    expert_nodes: int = 1,
    max_nodes: int = 1,
) -> Choices:
    """Choose the k experts of each token with the largest scores. The lower index wins a tie.

    sigmoid: scores are sigmoids of the logits, and gates are scores divided by their sum over all experts. Otherwise
        both are the softmax.
    bias_E: added to the scores for the choice alone, so gates do not depend on it (arXiv:2408.15664).
    expert_nodes, max_nodes: a token's experts are on max_nodes of so many nodes (`within_nodes`).
    Raises ValueError as `check_sizes`.
    """
    check_sizes(logits_GSE, k, None)
    log_scores_GSE = log_scores(at_least_float32(logits_GSE), sigmoid=sigmoid)
    gates_GSE = log_scores_GSE.softmax(dim=-1)
    scores_GSE = log_scores_GSE.detach().exp() if sigmoid else gates_GSE
    compared_GSE = scores_GSE if bias_E is None else scores_GSE + bias_E
    if max_nodes < expert_nodes:
        compared_GSE = within_nodes(compared_GSE, k, expert_nodes, max_nodes)
    expert_GSK = top_k(compared_GSE, k)
    gate_GSK = gates_GSE.gather(-1, expert_GSK)
    if bias_E is not None:  # it can choose experts whose gates have all underflowed
        gate_GSK = gate_GSK.clamp(min=torch.finfo(gate_GSK.dtype).tiny)
    return Choices(expert_GSK=expert_GSK, gate_GSK=gate_GSK, sum_GE=masked_sum(gates_GSE, valid_GS))


def log_scores(logits_GSE: Tensor, *, sigmoid: bool) -> Tensor:
    """Return numbers whose softmax is the gates: ln sigmoid(x) for scores by sigmoid, since s / Σ s = softmax(ln s)."""
    return F.logsigmoid(logits_GSE) if sigmoid else logits_GSE


@torch.no_grad()
def top_k(score_GSE: Tensor, k: int) -> Tensor:
    """Return the indices [G, S, K] of the k largest scores, in falling order. The lower index wins a tie.

    Other dimensions may come before the last one.
    """
    best_GS1 = score_GSE.argmax(dim=-1, keepdim=True)
    indices = [best_GS1]
    for _ in range(k - 1):
        score_GSE = score_GSE.scatter(-1, best_GS1, -torch.inf)
        best_GS1 = score_GSE.argmax(dim=-1, keepdim=True)
        indices.append(best_GS1)
    return torch.cat(indices, dim=-1)


@torch.no_grad()
def within_nodes(score_GSE: Tensor, k: int, expert_nodes: int, max_nodes: int) -> Tensor:
    """Return the scores with -inf for experts outside of each token's best nodes (arXiv:2412.19437, section 2.1.2).

    Each of the `expert_nodes` nodes has equally many consecutive experts. Its score is the sum of its k / max_nodes
    largest scores, and a token has the `max_nodes` best nodes. The lower index wins a tie.
    """
    score_GSAB = score_GSE.view(*score_GSE.shape[:-1], expert_nodes, -1)
    sum_GSA = score_GSAB.gather(-1, top_k(score_GSAB, k // max_nodes)).sum(dim=-1)
    others_GSA = torch.ones(sum_GSA.shape, dtype=torch.bool, device=sum_GSA.device)
    others_GSA = others_GSA.scatter(-1, top_k(sum_GSA, max_nodes), False)
    return score_GSAB.masked_fill(others_GSA.unsqueeze(-1), -torch.inf).flatten(-2)


def masked_sum(value_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Sum over the real tokens of each group, [G, E]. A matmul does it without a copy of its input."""
    with outside_autocast(value_GSE):  # autocast would round a matmul
        return (valid_GS.to(value_GSE.dtype).unsqueeze(1) @ value_GSE).squeeze(1)


def balance_loss(choices: Choices, valid_GS: Tensor, counted: int | None = 1) -> Tensor:
    """Return line 13 of GShard's Algorithm 1 as printed, [G]: (1/E) sum_e (c_e / S) · m_e.

    First choices count even if they exceed capacity. The loss is 1/E² when uniform, 0 for an empty group.
    counted: number of best choices that count, each as 1 / counted; None is all of them.
    """
    sum_GE, expert_GSK = choices.sum_GE, choices.expert_GSK[..., :counted]
    one_GSK = valid_GS.to(sum_GE.dtype).unsqueeze(-1).expand_as(expert_GSK)
    load_GE = torch.zeros_like(sum_GE).scatter_add_(1, expert_GSK.flatten(1), one_GSK.flatten(1))
    num_tokens_G1 = valid_GS.sum(dim=1, keepdim=True).clamp(min=1)
    num_counted = expert_GSK.shape[-1]
    choices_G1 = num_tokens_G1 if num_counted == 1 else num_counted * num_tokens_G1  # a factor of 1 is a kernel, too
    return (load_GE / choices_G1 * (sum_GE / num_tokens_G1)).mean(dim=-1)


def check_sizes(logits_GSE: Tensor, k: int, capacity: int | None) -> int:
    """Return E.

    Raises ValueError if there are fewer than 2 experts, k lies outside 1..E, or the capacity is below 1.
    """
    E = logits_GSE.shape[-1]
    if E < 2:
        raise ValueError(f"a gate needs at least 2 experts to choose from, got {E}")
    if k < 1:
        raise ValueError(f"k={k} gives a token no expert; it must be at least 1")
    if k > E:
        raise ValueError(f"k={k} choices a token need at least {k} experts, got {E}")
    check_capacity(capacity)
    return E


def check_capacity(capacity: int | None) -> None:
    """Raise ValueError if the capacity is below 1."""
    if capacity is not None and capacity < 1:
        raise ValueError(f"capacity={capacity} would drop every token; it must be at least 1")
