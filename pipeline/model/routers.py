"""Routers: the parameters of a gate, and how the layer's mode and the group's size reach its function.

G groups, S tokens of a group, M model, E experts, C capacity, A groups of experts, B experts of such a group.
A router gets float32 tokens outside autocast. Its weights are [E, M], as Linear's: the gradient of a narrow [M, E] is
eight times slower in MKL. In training it draws from torch's default generator, seeded by group
(`pipeline.model.noise`); in evaluation it draws nothing and nothing has a capacity.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.model.gate_config import (
    BalancedConfig,
    DroplessConfig,
    ExpertChoiceConfig,
    GateConfig,
    HierarchicalConfig,
    NoisyTopKConfig,
    Top1Config,
    Top2Config,
)
from pipeline.model.gating import Gating, dropless_gating, top1_gating, top2_gating
from pipeline.model.noisy_gating import hierarchical_gating, noisy_top_k_gating
from pipeline.model.selection import Selection, balanced_gating, expert_choice_gating
from pipeline.model.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Routing:
    """A gate's decision, and the router logits behind it, [G, S, E], without noise.

    z_logits: what the z-loss looks at where it is not logits_GSE: each [G, S, any].
    """

    decision: Gating | Selection
    logits_GSE: Tensor
    z_logits: tuple[Tensor, ...] = ()


def capacity_of(factor: float, k: float, num_tokens: int, num_experts: int) -> int:
    """C of a group of `num_tokens`: ceil(factor · k · S / E), at least 1."""
    return max(1, math.ceil(factor * k * num_tokens / num_experts))


class Top2Router(nn.Module):
    """See Top2Config."""

    def __init__(self, dim: int, num_experts: int, config: Top2Config) -> None:
        super().__init__()
        self.config = config
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.loss_weights = {"balance": config.balance_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        G, S, _ = x_GSM.shape
        c, logits_GSE, capacity, rnd_GS = self.config, F.linear(x_GSM, self.wg_EM), None, None
        if self.training:
            capacity = capacity_of(c.capacity_factor, c.k, S, logits_GSE.shape[-1])
            rnd_GS = torch.rand(G, S, device=x_GSM.device) if c.second == "random" else None
        decision = top2_gating(
            logits_GSE,
            capacity,
            valid_GS=tokens.valid_GS,
            rnd_GS=rnd_GS,
            count_dropped_second=c.count_dropped_second,
            prioritized=c.prioritized,
        )
        return Routing(decision=decision, logits_GSE=logits_GSE)


class Top1Router(nn.Module):
    """See Top1Config."""

    def __init__(self, dim: int, num_experts: int, config: Top1Config) -> None:
        super().__init__()
        self.config = config
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.loss_weights = {"balance": config.balance_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        c, capacity = self.config, None
        if self.training:
            capacity = capacity_of(c.capacity_factor, c.k, x_GSM.shape[1], len(self.wg_EM))
            x_GSM = x_GSM * torch.empty_like(x_GSM).uniform_(1 - c.jitter, 1 + c.jitter) if c.jitter else x_GSM
        logits_GSE = F.linear(x_GSM, self.wg_EM)
        decision = top1_gating(logits_GSE, capacity, valid_GS=tokens.valid_GS, prioritized=c.prioritized)
        return Routing(decision=decision, logits_GSE=logits_GSE)


class DroplessRouter(nn.Module):
    """See DroplessConfig."""

    def __init__(self, dim: int, num_experts: int, config: DroplessConfig) -> None:
        super().__init__()
        self.config = config
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.loss_weights = {"balance": config.balance_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        logits_GSE = F.linear(x_GSM, self.wg_EM)
        decision = dropless_gating(logits_GSE, self.config.k, valid_GS=tokens.valid_GS)
        return Routing(decision=decision, logits_GSE=logits_GSE)


class NoisyTopKRouter(nn.Module):
    """See NoisyTopKConfig. Both weights start at zero, as the paper's."""

    zero_initialized = frozenset({"wg_EM", "wn_EM"})

    def __init__(self, dim: int, num_experts: int, config: NoisyTopKConfig) -> None:
        super().__init__()
        self.config = config
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.wn_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.loss_weights = {"importance": config.importance_weight, "load": config.load_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        c, logits_GSE = self.config, F.linear(x_GSM, self.wg_EM)
        S, E = logits_GSE.shape[1:]
        with_capacity = self.training and c.capacity_factor > 0
        decision = noisy_top_k_gating(
            logits_GSE,
            F.linear(x_GSM, self.wn_EM),
            c.k,
            capacity_of(c.capacity_factor, c.k, S, E) if with_capacity else None,
            valid_GS=tokens.valid_GS,
            noise_GSE=torch.randn_like(logits_GSE) if self.training else None,
        )
        return Routing(decision=decision, logits_GSE=logits_GSE)


class HierarchicalRouter(nn.Module):
    """See HierarchicalConfig. Expert i·B + j is the j-th of group i; all weights start at zero."""

    zero_initialized = frozenset({"wg_AM", "wn_AM", "wg_ABM", "wn_ABM"})

    def __init__(self, dim: int, num_experts: int, config: HierarchicalConfig) -> None:
        super().__init__()
        self.config = config
        A, B = config.groups, num_experts // config.groups
        self.wg_AM = nn.Parameter(torch.empty(A, dim))
        self.wn_AM = nn.Parameter(torch.empty(A, dim))
        self.wg_ABM = nn.Parameter(torch.empty(A, B, dim))
        self.wn_ABM = nn.Parameter(torch.empty(A, B, dim))
        self.loss_weights = {"importance": config.importance_weight, "load": config.load_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        c, S = self.config, x_GSM.shape[1]
        primary_GSA = F.linear(x_GSM, self.wg_AM)
        secondary_GSAB = self._secondary(x_GSM, self.wg_ABM)
        num_experts = secondary_GSAB[0, 0].numel()
        with_capacity = self.training and c.capacity_factor > 0
        decision = hierarchical_gating(
            primary_GSA,
            F.linear(x_GSM, self.wn_AM),
            secondary_GSAB,
            self._secondary(x_GSM, self.wn_ABM),
            c.k,
            capacity_of(c.capacity_factor, c.k**2, S, num_experts) if with_capacity else None,
            valid_GS=tokens.valid_GS,
            primary_noise_GSA=torch.randn_like(primary_GSA) if self.training else None,
            secondary_noise_GSAB=torch.randn_like(secondary_GSAB) if self.training else None,
        )
        joint_GSAB = primary_GSA.log_softmax(dim=-1).unsqueeze(-1) + secondary_GSAB.log_softmax(dim=-1)
        return Routing(
            decision=decision,
            logits_GSE=joint_GSAB.flatten(2),
            z_logits=(primary_GSA, *secondary_GSAB.unbind(2)),
        )

    @staticmethod
    def _secondary(x_GSM: Tensor, weight_ABM: Tensor) -> Tensor:
        return F.linear(x_GSM, weight_ABM.flatten(0, 1)).unflatten(2, weight_ABM.shape[:2])


class BalancedRouter(nn.Module):
    """See BalancedConfig. A threshold starts at 1 / E, the mean of a gate."""

    def __init__(self, dim: int, num_experts: int, config: BalancedConfig) -> None:
        super().__init__()
        self.config = config
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.threshold_E = nn.Parameter(torch.empty(num_experts))
        self.loss_weights = {"threshold": config.threshold_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        logits_GSE = F.linear(x_GSM, self.wg_EM)
        decision = balanced_gating(
            logits_GSE, self.threshold_E, self.config.k, valid_GS=tokens.valid_GS, training=self.training
        )
        return Routing(decision=decision, logits_GSE=logits_GSE)


class ExpertChoiceRouter(nn.Module):
    """See ExpertChoiceConfig. In evaluation every sentence is a group of its own."""

    def __init__(self, dim: int, num_experts: int, config: ExpertChoiceConfig) -> None:
        super().__init__()
        self.config = config
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.loss_weights: dict[str, float] = {}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        logits_GSE = F.linear(x_GSM, self.wg_EM)
        decision = expert_choice_gating(
            logits_GSE,
            self.config.capacity_factor,
            valid_GS=tokens.valid_GS,
            sentence_GS=None if self.training else tokens.sentence_GS,
        )
        return Routing(decision=decision, logits_GSE=logits_GSE)


Router = (
    Top2Router
    | Top1Router
    | DroplessRouter
    | NoisyTopKRouter
    | HierarchicalRouter
    | BalancedRouter
    | ExpertChoiceRouter
)


def build_router(dim: int, num_experts: int, config: GateConfig) -> Router:
    """The router of a gate's configuration."""
    match config:
        case Top2Config():
            return Top2Router(dim, num_experts, config)
        case Top1Config():
            return Top1Router(dim, num_experts, config)
        case DroplessConfig():
            return DroplessRouter(dim, num_experts, config)
        case NoisyTopKConfig():
            return NoisyTopKRouter(dim, num_experts, config)
        case HierarchicalConfig():
            return HierarchicalRouter(dim, num_experts, config)
        case BalancedConfig():
            return BalancedRouter(dim, num_experts, config)
        case ExpertChoiceConfig():
            return ExpertChoiceRouter(dim, num_experts, config)
