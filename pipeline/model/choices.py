"""The part of a gate that looks at all experts: softmax over the router's logits, and what is kept of it.

G groups, S tokens of a group, E experts, K choices of a token.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Choices:
    """K numbers of each token instead of E. expert_GSK: the experts with the largest gates, falling; gate_GSK: their
    gates, float32. sum_GE: gates summed over the real tokens of a group."""

    expert_GSK: Tensor
    gate_GSK: Tensor
    sum_GE: Tensor

    @property
    def num_experts(self) -> int:
        return self.sum_GE.shape[1]


def choose(logits_GSE: Tensor, k: int, valid_GS: Tensor) -> Choices:
    """The k best experts of each token by softmax; ties go to the lower index. Raises ValueError on impossible
    sizes."""
    check_sizes(logits_GSE, k, None)
    gates_GSE = at_least_float32(logits_GSE).softmax(dim=-1)
    expert_GSK = top_k(gates_GSE, k)
    return Choices(
        expert_GSK=expert_GSK, gate_GSK=gates_GSE.gather(-1, expert_GSK), sum_GE=masked_sum(gates_GSE, valid_GS)
    )


@torch.no_grad()
def top_k(score_GSE: Tensor, k: int) -> Tensor:
    """Indices of the k largest scores, falling, [G, S, K]; the lower index wins a tie."""
    best_GS = score_GSE.argmax(dim=-1, keepdim=True)
    chosen = [best_GS]
    for _ in range(k - 1):
        score_GSE = score_GSE.scatter(-1, best_GS, -torch.inf)
        best_GS = score_GSE.argmax(dim=-1, keepdim=True)
        chosen.append(best_GS)
    return torch.cat(chosen, dim=-1)


def masked_sum(value_GSE: Tensor, valid_GS: Tensor) -> Tensor:
    """Sum over the real tokens of each group, [G, E], as a matmul, which keeps no copy of its input."""
    with outside_autocast(value_GSE):  # a matmul is what autocast would round
        return (valid_GS.to(value_GSE.dtype).unsqueeze(1) @ value_GSE).squeeze(1)


def check_sizes(logits_GSE: Tensor, k: int, capacity: int | None) -> int:
    """E. Raises ValueError on fewer than 2 experts, fewer choices than 1 or more than experts, and a capacity below
    1."""
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
    """Raise ValueError on a capacity below 1."""
    if capacity is not None and capacity < 1:
        raise ValueError(f"capacity={capacity} would drop every token; it must be at least 1")


def at_least_float32(x: Tensor) -> Tensor:
    """float32, or float64 where it is that already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def outside_autocast(x: Tensor) -> AbstractContextManager[None]:
    """What is computed inside keeps its dtype; torch's meta device knows no autocast."""
    device = x.device.type
    available = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else nullcontext()
