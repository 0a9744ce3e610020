"""The Mixture-of-Experts feed-forward layer, written for one device (GShard, Algorithm 2).

G groups, S tokens of a group, M model, H hidden, E experts, C capacity. `pipeline.parallel` cuts E over devices from
outside: it slices `Experts`' parameters, hangs the all-to-all on it as hooks, and replaces `agree_on_capacity`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.model.config import MoEConfig
from pipeline.model.dispatch import Route, combine, dispatch
from pipeline.model.gating import Gating, at_least_float32, top2_gating


@dataclass(frozen=True, kw_only=True)
class MoEStatistics:
    """What one pass through one MoE layer did; sums, so that micro-batches and processes add up.

    aux_loss: sum over groups of line 13, carries the gradient. tokens, dropped_first, kept: real tokens, lost first
    choices, kept choices. load_E: first choices per expert.
    """

    aux_loss: Tensor
    tokens: Tensor
    dropped_first: Tensor
    kept: Tensor
    load_E: Tensor

    @classmethod
    def of(cls, gating: Gating) -> "MoEStatistics":
        return cls(
            aux_loss=gating.aux_loss_G.sum(),
            tokens=gating.valid_GS.sum(),
            dropped_first=gating.dropped_first,
            kept=gating.kept_GSK.sum(),
            load_E=gating.first_load_GE.sum(dim=0),
        )


class Experts(nn.Module):
    """E feed-forward networks side by side: [E, G·C, M] -> [E, G·C, M]."""

    def __init__(self, num_experts: int, dim: int, hidden: int) -> None:
        super().__init__()
        self.wi_EMH = nn.Parameter(torch.empty(num_experts, dim, hidden))
        self.wo_EHM = nn.Parameter(torch.empty(num_experts, hidden, dim))

    def forward(self, slots_EYM: Tensor) -> Tensor:
        return torch.bmm(torch.bmm(slots_EYM, self.wi_EMH).relu_(), self.wo_EHM)


class MoE(nn.Module):
    """Top-2 MoE layer. In training experts have a capacity and the second choice is random; evaluation drops
    nothing."""

    def __init__(self, dim: int, config: MoEConfig) -> None:
        super().__init__()
        self.num_experts = config.num_experts
        self.capacity_factor = config.capacity_factor
        self.wg_ME = nn.Parameter(torch.empty(dim, config.num_experts))
        self.experts = Experts(config.num_experts, dim, config.expert_dim)
        self.agree_on_capacity: Callable[[int], int] = lambda capacity: capacity

    def capacity(self, num_tokens: int) -> int:
        """C of a group of `num_tokens`: ceil(factor · 2 · S / E)."""
        return max(1, math.ceil(self.capacity_factor * 2 * num_tokens / self.num_experts))

    def forward(self, x_GSM: Tensor, valid_GS: Tensor) -> tuple[Tensor, MoEStatistics]:
        G, S, M = x_GSM.shape
        with torch.autocast(x_GSM.device.type, enabled=False):  # the gate is float32 whatever the rest is
            logits_GSE = at_least_float32(x_GSM) @ self.wg_ME
        if self.training:
            rnd_GS = torch.rand(G, S, device=x_GSM.device)
            gating = top2_gating(logits_GSE, self.capacity(S), valid_GS=valid_GS, rnd_GS=rnd_GS)
            capacity = gating.capacity
        else:
            gating = top2_gating(logits_GSE, None, valid_GS=valid_GS)
            capacity = self.agree_on_capacity(gating.capacity)
        route = Route.of(gating, capacity)
        slots_XM = dispatch(x_GSM.reshape(G * S, M), route)
        slots_EYM = self.experts(slots_XM.view(self.num_experts, G * capacity, M))
        y_TM = combine(slots_EYM.reshape(-1, M), gating.weight_GSK.view(G * S, -1), route)
        return y_TM.view(G, S, M), MoEStatistics.of(gating)
