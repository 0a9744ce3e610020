"""Configuration of the gates, one dataclass each, told apart by `kind`. Free of torch, so that it loads fast.

A gate's record states all that the rest of the pipeline asks about a gate, so that no other module lists gates by name:
    experts_per_token: experts that a token visits, on average where the number varies. The cost depends on it.
    queues: True if tokens queue for an expert, so that experts may have a capacity in evaluation.
    experts_choose: True if experts choose tokens, False if tokens choose experts.
    training_factor: capacity of an expert in training, in fair shares; 0 for no capacity.
    encoder_only: name of the setting that makes the gate look at later tokens, or empty. A decoder cannot have it.
    decoder_caution: a warning about the gate in a decoder, or empty.
    unprunable: the reason why experts cannot be taken away from a trained model, or empty.
    unexportable: the reason why NLLB-MoE does not evaluate as this gate, or empty.
    router_shapes: sizes of the router's parameters by name, for E experts and M model.
    check: raises ValueError where the gate cannot work with so many experts; `path` is the key that the error names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from pipeline.model.moe.gates import checks
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.model.moe.gates.top_k_config import DroplessConfig, TopKConfig

Sizes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Top2Config:
    """GShard's gate (arXiv:2006.16668, Algorithm 1).

    capacity_factor: slots of an expert in a group in training, in units of its fair share of two choices a token.
    balance_weight: weight of E² · line 13, which is 1 when experts are used alike.
    second: `random` keeps the second choice with probability min(1, 2·g2), `all` always.
    count_dropped_second: a second choice that the draw dropped still takes a slot, as line 22 is printed.
    prioritized: slots go to the tokens with the largest first gate, not to the first tokens (V-MoE, arXiv:2106.05974);
        encoder only.
    """

    kind: Literal["top2"] = "top2"
    capacity_factor: float = 1.0
    balance_weight: float = 0.01
    second: Literal["random", "all"] = "random"
    count_dropped_second: bool = False
    prioritized: bool = False

    k: ClassVar[int] = 2
    experts_per_token: ClassVar[float] = 2
    queues: ClassVar[bool] = True
    experts_choose: ClassVar[bool] = False
    decoder_caution: ClassVar[str] = ""
    unprunable: ClassVar[str] = ""
    unexportable: ClassVar[str] = ""

    def check(self, num_experts: int, path: str) -> None:
        checks.choices(num_experts, 2, path, "two choices a token")
        checks.capacity_factor(self.capacity_factor, path)
        checks.not_negative(self, path, "balance_weight")

    @property
    def training_factor(self) -> float:
        return self.capacity_factor

    @property
    def encoder_only(self) -> str:
        return "prioritized" if self.prioritized else ""

    def router_shapes(self, num_experts: int, dim: int) -> Sizes:
        return {"wg_EM": (num_experts, dim)}


@dataclass(frozen=True, kw_only=True)
class Top1Config:
    """The gate of Switch Transformers (arXiv:2101.03961).

    capacity_factor: slots of an expert in a group in training, in units of its fair share of one choice a token.
    jitter: in training, router inputs are multiplied by uniform draws from 1 - jitter to 1 + jitter.

    The other fields are those of Top2Config.
    """

    kind: Literal["top1"] = "top1"
    capacity_factor: float = 1.25
    balance_weight: float = 0.01
    jitter: float = 0.01
    prioritized: bool = False

    k: ClassVar[int] = 1
    experts_per_token: ClassVar[float] = 1
    queues: ClassVar[bool] = True
    experts_choose: ClassVar[bool] = False
    decoder_caution: ClassVar[str] = ""
    unprunable: ClassVar[str] = ""
    unexportable: ClassVar[str] = "it gives every token one expert"

    def check(self, num_experts: int, path: str) -> None:
        checks.choices(num_experts, 1, path, "one choice a token")
        checks.capacity_factor(self.capacity_factor, path)
        checks.not_negative(self, path, "balance_weight")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"{path}.jitter={self.jitter} must lie in [0, 1)")

    @property
    def training_factor(self) -> float:
        return self.capacity_factor

    @property
    def encoder_only(self) -> str:
        return "prioritized" if self.prioritized else ""

    def router_shapes(self, num_experts: int, dim: int) -> Sizes:
        return {"wg_EM": (num_experts, dim)}


@dataclass(frozen=True, kw_only=True)
class NoisyTopKConfig:
    """Noisy top-k gating (Shazeer et al. 2017, arXiv:1701.06538).

    k: experts that each token chooses.
    capacity_factor: slots of an expert in a group in training, in fair shares; 0 is no capacity, as in the paper.
    importance_weight: weight of CV² of importance; 0.01 in the paper's multilingual translation.
    load_weight: weight of CV² of load; 0.01 there, too.
    """

    kind: Literal["noisy_topk"] = "noisy_topk"
    k: int = 2
    capacity_factor: float = 0.0
    importance_weight: float = 0.01
    load_weight: float = 0.01

    queues: ClassVar[bool] = True
    experts_choose: ClassVar[bool] = False
    encoder_only: ClassVar[str] = ""
    decoder_caution: ClassVar[str] = ""
    unprunable: ClassVar[str] = ""

    @property
    def experts_per_token(self) -> float:
        return self.k

    @property
    def training_factor(self) -> float:
        return self.capacity_factor

    @property
    def unexportable(self) -> str:
        return "" if self.k == 2 else f"it gives every token k={self.k} experts"

    def check(self, num_experts: int, path: str) -> None:
        checks.choices(num_experts, self.k, path)
        checks.not_negative(self, path, "capacity_factor", "importance_weight", "load_weight")

    def router_shapes(self, num_experts: int, dim: int) -> Sizes:
        return {"wg_EM": (num_experts, dim), "wn_EM": (num_experts, dim)}


@dataclass(frozen=True, kw_only=True)
class HierarchicalConfig:
    """Two levels of noisy top-k gates (Shazeer et al. 2017, appendix B).

    groups: number of groups of experts, which must divide the number of experts.
    k: groups that a token chooses, and experts that it chooses in each, so that it has k² experts.

    The other fields are those of NoisyTopKConfig.
    """

    kind: Literal["hierarchical"] = "hierarchical"
    groups: int = 2
    k: int = 2
    capacity_factor: float = 0.0
    importance_weight: float = 0.01
    load_weight: float = 0.01

    queues: ClassVar[bool] = True
    experts_choose: ClassVar[bool] = False
    encoder_only: ClassVar[str] = ""
    decoder_caution: ClassVar[str] = ""
    unprunable: ClassVar[str] = "it chooses among groups of one size"
    unexportable: ClassVar[str] = "it chooses at two levels"

    @property
    def experts_per_token(self) -> float:
        return self.k**2

    @property
    def training_factor(self) -> float:
        return self.capacity_factor

    def check(self, num_experts: int, path: str) -> None:
        checks.groups(num_experts, self.groups, path)
        checks.choices(self.groups, self.k, path, what="groups")
        checks.choices(num_experts // self.groups, self.k, path, what="experts of a group")
        checks.not_negative(self, path, "capacity_factor", "importance_weight", "load_weight")

    def router_shapes(self, num_experts: int, dim: int) -> Sizes:
        A, B = self.groups, num_experts // self.groups
        return {"wg_AM": (A, dim), "wn_AM": (A, dim), "wg_ABM": (A, B, dim), "wn_ABM": (A, B, dim)}


@dataclass(frozen=True, kw_only=True)
class BalancedConfig:
    """Strictly balanced gating (Shazeer et al. 2017, appendix F).

    In training each expert takes its k·|X|/E best tokens, afterwards the tokens above its learned threshold.
    k: experts of a token on average.
    threshold_weight: weight of L_batchwise.
    """

    kind: Literal["balanced"] = "balanced"
    k: int = 2
    threshold_weight: float = 0.01

    queues: ClassVar[bool] = False
    experts_choose: ClassVar[bool] = True
    training_factor: ClassVar[float] = 1
    encoder_only: ClassVar[str] = ""
    decoder_caution: ClassVar[str] = (
        "in the decoder the balanced gate's training mask looks at later tokens, which its thresholds cannot when it "
        "translates; as model.moe.encoder_gate it would not"
    )
    unprunable: ClassVar[str] = "its thresholds were learned for gates over all of them"
    unexportable: ClassVar[str] = "its thresholds give a token any number of experts"

    @property
    def experts_per_token(self) -> float:
        return self.k

    def check(self, num_experts: int, path: str) -> None:
        checks.choices(num_experts, self.k, path)
        checks.threshold_weight(self.threshold_weight, path)

    def router_shapes(self, num_experts: int, dim: int) -> Sizes:
        return {"wg_EM": (num_experts, dim), "threshold_E": (num_experts,)}


@dataclass(frozen=True, kw_only=True)
class ExpertChoiceConfig:
    """Expert choice (arXiv:2202.09368), for the encoder only.

    capacity_factor: experts of a token on average. Each expert takes its capacity_factor · S / E best tokens.
    """

    kind: Literal["expert_choice"] = "expert_choice"
    capacity_factor: float = 2.0

    queues: ClassVar[bool] = False
    experts_choose: ClassVar[bool] = True
    training_factor: ClassVar[float] = 1
    encoder_only: ClassVar[str] = "expert_choice"
    decoder_caution: ClassVar[str] = ""
    unprunable: ClassVar[str] = "there each expert takes its share of the tokens, and none is idle"
    unexportable: ClassVar[str] = "its experts choose their tokens"

    @property
    def experts_per_token(self) -> float:
        return self.capacity_factor

    def check(self, num_experts: int, path: str) -> None:
        checks.capacity_factor(self.capacity_factor, path)
        checks.at_most_experts(self.capacity_factor, num_experts, path)

    def router_shapes(self, num_experts: int, dim: int) -> Sizes:
        return {"wg_EM": (num_experts, dim)}


TokenChoice = Top2Config | Top1Config | DroplessConfig | TopKConfig | NoisyTopKConfig | HierarchicalConfig
GateConfig = TokenChoice | BalancedConfig | ExpertChoiceConfig | TaskConfig
GATES: Mapping[str, type[GateConfig]] = {gate.kind: gate for gate in get_args(GateConfig)}  # by kind
