"""Routers: the parameters of gates. A router calls its gate's function with the capacity and the noise of a pass.

G groups, S tokens of a group, M model, E experts, C capacity, A groups of experts, B experts of such a group.
A router gets float32 tokens outside autocast. Its weights are [E, M], as those of Linear, because the gradient of a
narrow [M, E] is eight times slower in MKL. In training it draws from torch's default generator, which is seeded for
each group (`pipeline.model.noise`). In evaluation it draws nothing, and experts have no capacity unless
`pipeline.model.moe.evaluation_capacity` sets one.
"""

from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.model.moe.gates.choices import top_k
from pipeline.model.moe.gates.config import (
    BalancedConfig,
    ExpertChoiceConfig,
    GateConfig,
    HierarchicalConfig,
    NoisyTopKConfig,
    Top1Config,
    Top2Config,
)
from pipeline.model.moe.gates.expert_choice import balanced_gating, expert_choice_gating
from pipeline.model.moe.gates.noisy_top_k import hierarchical_gating, noisy_top_k_gating
from pipeline.model.moe.gates.task import task_gating
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.model.moe.gates.token_choice import (
    dropless_of_choices,
    top1_of_choices,
    top2_of_choices,
    top_k_of_choices,
)
from pipeline.model.moe.gates.top_k_config import DroplessConfig, TopKConfig
from pipeline.model.moe.router_chunks import choose_from
from pipeline.model.moe.router_loss import observe
from pipeline.model.moe.routing import Routing, slots
from pipeline.model.moe.tokens import Tokens
from pipeline.model.precision import at_least_float32


class Top2Router(nn.Module):
    """The router of Top2Config."""

    def __init__(self, dim: int, num_experts: int, config: Top2Config, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.evaluation_factor = 0.0
        self.loss_weights = {"balance": config.balance_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        (G, S, _), c = x_GSM.shape, self.config
        capacity = slots(self, c.capacity_factor, c.k, tokens, len(self.wg_EM))
        rnd_GS = torch.rand(G, S, device=x_GSM.device) if self.training and c.second == "random" else None
        choices, observed = choose_from(x_GSM, self.wg_EM, c.k, tokens.valid_GS, with_z=self.with_z)
        decision = top2_of_choices(
            choices,
            capacity,
            valid_GS=tokens.valid_GS,
            rnd_GS=rnd_GS,
            count_dropped_second=c.count_dropped_second,
            prioritized=c.prioritized,
        )
        return Routing(decision=decision, observed=observed)


class Top1Router(nn.Module):
    """The router of Top1Config."""

    def __init__(self, dim: int, num_experts: int, config: Top1Config, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.evaluation_factor = 0.0
        self.loss_weights = {"balance": config.balance_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        c = self.config
        capacity = slots(self, c.capacity_factor, c.k, tokens, len(self.wg_EM))
        if self.training and c.jitter:
            x_GSM = x_GSM * torch.empty_like(x_GSM).uniform_(1 - c.jitter, 1 + c.jitter)
        choices, observed = choose_from(x_GSM, self.wg_EM, c.k, tokens.valid_GS, with_z=self.with_z)
        decision = top1_of_choices(choices, capacity, valid_GS=tokens.valid_GS, prioritized=c.prioritized)
        return Routing(decision=decision, observed=observed)


class DroplessRouter(nn.Module):
    """The router of DroplessConfig."""

    def __init__(self, dim: int, num_experts: int, config: DroplessConfig, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.loss_weights = {"balance": config.balance_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        choices, observed = choose_from(x_GSM, self.wg_EM, self.config.k, tokens.valid_GS, with_z=self.with_z)
        decision = dropless_of_choices(choices, valid_GS=tokens.valid_GS, normalize=self.config.normalize)
        return Routing(decision=decision, observed=observed)


class TopKRouter(nn.Module):
    """The router of TopKConfig.

    bias_E: None without a bias. It has no gradient: the engine moves it after each step (`engine.expert_bias`).
    """

    bias_E: nn.Parameter | None
    zero_initialized = frozenset({"bias_E"})

    def __init__(self, dim: int, num_experts: int, config: TopKConfig, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        bias_E = nn.Parameter(torch.empty(num_experts), requires_grad=False) if config.bias_rate else None
        self.register_parameter("bias_E", bias_E)
        self.evaluation_factor = 0.0
        self.loss_weights = {"balance": config.balance_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        c = self.config
        capacity = slots(self, c.capacity_factor, c.k, tokens, len(self.wg_EM))
        choices, observed = choose_from(
            x_GSM,
            self.wg_EM,
            c.k,
            tokens.valid_GS,
            with_z=self.with_z,
            sigmoid=c.score == "sigmoid",
            bias_E=self.bias_E,
            expert_nodes=c.expert_nodes,
            max_nodes=c.max_nodes,
        )
        decision = top_k_of_choices(choices, capacity, valid_GS=tokens.valid_GS, normalize=c.normalize)
        return Routing(decision=decision, observed=observed)


class NoisyTopKRouter(nn.Module):
    """The router of NoisyTopKConfig. Both weights start at zero, as in the paper."""

    zero_initialized = frozenset({"wg_EM", "wn_EM"})

    def __init__(self, dim: int, num_experts: int, config: NoisyTopKConfig, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.wn_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.evaluation_factor = 0.0
        self.loss_weights = {"importance": config.importance_weight, "load": config.load_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        c, logits_GSE = self.config, F.linear(x_GSM, self.wg_EM)
        decision = noisy_top_k_gating(
            logits_GSE,
            F.linear(x_GSM, self.wn_EM),
            c.k,
            slots(self, c.capacity_factor, c.k, tokens, len(self.wg_EM)),
            valid_GS=tokens.valid_GS,
            noise_GSE=torch.randn_like(logits_GSE) if self.training else None,
        )
        return Routing(decision=decision, observed=observe(logits_GSE, tokens.valid_GS, with_z=self.with_z))


class HierarchicalRouter(nn.Module):
    """The router of HierarchicalConfig. Expert i·B + j is the j-th of group i. All weights start at zero."""

    zero_initialized = frozenset({"wg_AM", "wn_AM", "wg_ABM", "wn_ABM"})

    def __init__(self, dim: int, num_experts: int, config: HierarchicalConfig, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
        A, B = config.groups, num_experts // config.groups
        self.wg_AM = nn.Parameter(torch.empty(A, dim))
        self.wn_AM = nn.Parameter(torch.empty(A, dim))
        self.wg_ABM = nn.Parameter(torch.empty(A, B, dim))
        self.wn_ABM = nn.Parameter(torch.empty(A, B, dim))
        self.evaluation_factor = 0.0
        self.loss_weights = {"importance": config.importance_weight, "load": config.load_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        c, primary_GSA = self.config, F.linear(x_GSM, self.wg_AM)
        secondary_GSAB = self._secondary(x_GSM, self.wg_ABM)
        decision = hierarchical_gating(
            primary_GSA,
            F.linear(x_GSM, self.wn_AM),
            secondary_GSAB,
            self._secondary(x_GSM, self.wn_ABM),
            c.k,
            slots(self, c.capacity_factor, c.k**2, tokens, secondary_GSAB[0, 0].numel()),
            valid_GS=tokens.valid_GS,
            primary_noise_GSA=torch.randn_like(primary_GSA) if self.training else None,
            secondary_noise_GSAB=torch.randn_like(secondary_GSAB) if self.training else None,
        )
        joint_GSAB = primary_GSA.log_softmax(dim=-1).unsqueeze(-1) + secondary_GSAB.log_softmax(dim=-1)
        z_logits = (primary_GSA, *secondary_GSAB.unbind(2))
        observed = observe(joint_GSAB.flatten(2), tokens.valid_GS, with_z=self.with_z, z_logits=z_logits)
        return Routing(decision=decision, observed=observed)

    @staticmethod
    def _secondary(x_GSM: Tensor, weight_ABM: Tensor) -> Tensor:
        return F.linear(x_GSM, weight_ABM.flatten(0, 1)).view(*x_GSM.shape[:2], *weight_ABM.shape[:2])


class BalancedRouter(nn.Module):
    """The router of BalancedConfig. A threshold starts at 1 / E, the mean of a gate."""

    def __init__(self, dim: int, num_experts: int, config: BalancedConfig, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
        self.wg_EM = nn.Parameter(torch.empty(num_experts, dim))
        self.threshold_E = nn.Parameter(torch.empty(num_experts))
        self.loss_weights = {"threshold": config.threshold_weight}

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        logits_GSE = F.linear(x_GSM, self.wg_EM)
        decision = balanced_gating(
            logits_GSE, self.threshold_E, self.config.k, valid_GS=tokens.valid_GS, training=self.training
        )
        return Routing(decision=decision, observed=observe(logits_GSE, tokens.valid_GS, with_z=self.with_z))


class ExpertChoiceRouter(nn.Module):
    """The router of ExpertChoiceConfig. In evaluation every sentence is a group of its own."""

    def __init__(self, dim: int, num_experts: int, config: ExpertChoiceConfig, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
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
        return Routing(decision=decision, observed=observe(logits_GSE, tokens.valid_GS, with_z=self.with_z))


class TaskRouter(nn.Module):
    """The router of TaskConfig. It has the logits of each task, and no token changes them."""

    def __init__(self, dim: int, num_experts: int, config: TaskConfig, *, with_z: bool) -> None:
        super().__init__()
        self.config, self.with_z = config, with_z
        self.wt_TE = nn.Parameter(torch.empty(len(config.tasks), num_experts))
        self.loss_weights = {"balance": config.balance_weight}
        self._task_P: Tensor | None = None

    def tasks(self, pair_GS: Tensor) -> Tensor:
        """Return the number of the task of each token."""
        if self._task_P is None or self._task_P.device != pair_GS.device:
            names = self.config.tasks
            numbers = [names.index(self.config.task_of(pair)) for pair in self.config.pairs.split()]
            task_P = torch.tensor(numbers)
            # the host does not wait for a copy from pinned memory
            self._task_P = task_P.pin_memory().to(pair_GS.device, non_blocking=True) if pair_GS.is_cuda else task_P
        return self._task_P[pair_GS]

    def experts_of(self, pair_T: Tensor) -> Tensor:
        """Return the experts [T, K] of tokens of these pairs, the best first."""
        gate_TE = at_least_float32(self.wt_TE).softmax(
            dim=-1
        )  # as in training: gates may be equal where logits are not
        return top_k(gate_TE, self.config.k)[self.tasks(pair_T)]

    def forward(self, x_GSM: Tensor, tokens: Tokens) -> Routing:
        logits_GSE = F.embedding(self.tasks(tokens.pair_GS), self.wt_TE)
        decision = task_gating(logits_GSE, self.config.k, valid_GS=tokens.valid_GS)
        return Routing(decision=decision, observed=observe(logits_GSE, tokens.valid_GS, with_z=self.with_z))


Router = (
    Top2Router
    | Top1Router
    | DroplessRouter
    | TopKRouter
    | NoisyTopKRouter
    | HierarchicalRouter
    | BalancedRouter
    | ExpertChoiceRouter
    | TaskRouter
)
ROUTERS: Mapping[type[GateConfig], type[Router]] = {  # by the annotation of the argument `config`
    get_type_hints(router.__init__)["config"]: router for router in get_args(Router)
}


def build_router(dim: int, num_experts: int, config: GateConfig, *, with_z: bool) -> Router:
    """Build the router of a gate. with_z: it computes the z-loss."""
    router: type[Any] = ROUTERS[type(config)]
    built: Router = router(dim, num_experts, config, with_z=with_z)
    return built
