"""The first part of softmax gates: softmax over the router's logits, and the best experts of each token.

G groups, S tokens of a group, E experts, K choices of a token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.model.precision import at_least_float32, outside_autocast


@dataclass(frozen=True, kw_only=True)
class Choices:
    """K numbers for each token instead of E.

    expert_GSK: the experts with the largest gates, in falling order.
    gate_GSK: the gates of these experts, float32.
    sum_GE: gates summed over the real tokens of a group.
    """

    expert_GSK: Tensor
    gate_GSK: Tensor
    sum_GE: Tensor

    @property
    def num_experts(self) -> int:
        return self.sum_GE.shape[1]


def choose(logits_GSE: Tensor, k: int, valid_GS: Tensor) -> Choices:
    """Choose the k best experts of each token by softmax. The lower index wins a tie.

    Raises ValueError as `check_sizes`.
    """
    check_sizes(logits_GSE, k, None)
    gates_GSE = at_least_float32(logits_GSE).softmax(dim=-1)
    expert_GSK = top_k(gates_GSE, k)
    return Choices(
        expert_GSK=expert_GSK, gate_GSK=gates_GSE.gather(-1, expert_GSK), sum_GE=masked_sum(gates_GSE, valid_GS)
    )


@torch.no_grad()
def top_k(score_GSE: Tensor, k: int) -> Tensor:
    """Return the indices [G, S, K] of the k largest scores, in falling order. The lower index wins a tie."""
    best_GS1 = score_GSE.argmax(dim=-1, keepdim=True)
    indices = [best_GS1]
    for _ in range(k - 1):
        score_GSE = score_GSE.scatter(-1, best_GS1, -torch.inf)
        best_GS1 = score_GSE.argmax(dim=-1, keepdim=True)
        indices.append(best_GS1)
    return torch.cat(indices, dim=-1)


def masked_sum(value_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Sum over the real tokens of each group, [G, E]. A matmul does it without a copy of its input."""
    with outside_autocast(value_GSE):  # autocast would round a matmul
        return (valid_GS.to(value_GSE.dtype).unsqueeze(1) @ value_GSE).squeeze(1)


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
