"""Configuration of the gates, one dataclass each, told apart by `kind`; free of torch so that it loads fast.

Every gate says how many experts a token visits (`experts_per_token`, on average where it varies) and how many numbers
its router computes for each expert (`router_width`), which is what its cost depends on. `queues`: whether tokens queue
for an expert, so that it may have a capacity in evaluation.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal


@dataclass(frozen=True, kw_only=True)
class Top2Config:
    """GShard (arXiv:2006.16668), Algorithm 1.

    capacity_factor: slots of an expert in a group, in units of its fair share of two choices a token, in training.
    balance_weight: of E² · line 13 (1 when balanced). second: `random` keeps the second choice with probability
    min(1, 2·g2), `all` always. count_dropped_second: a second choice that the draw dropped still takes a slot, as line
    22 is printed. prioritized: slots go to the tokens with the largest first gate, not the first tokens (V-MoE,
    arXiv:2106.05974); encoder only.
    """

    kind: Literal["top2"] = "top2"
    capacity_factor: float = 1.0
    balance_weight: float = 0.01
    second: Literal["random", "all"] = "random"
    count_dropped_second: bool = False
    prioritized: bool = False

    k: ClassVar[int] = 2
    experts_per_token: ClassVar[float] = 2
    router_width: ClassVar[int] = 1
    queues: ClassVar[bool] = True

    def check(self, num_experts: int, path: str) -> None:
        """Raise ValueError where the gate cannot work with so many experts; `path` names it."""
        _at_most(num_experts, 2, path, "two choices a token")
        _capacity(self.capacity_factor, path)
        _not_negative(path, balance_weight=self.balance_weight)

    @property
    def sees_later_tokens(self) -> bool:
        return self.prioritized


@dataclass(frozen=True, kw_only=True)
class Top1Config:
    """Switch Transformer (arXiv:2101.03961). jitter: router inputs are multiplied by uniform(1 - jitter, 1 + jitter) in
    training. The other fields as in Top2Config."""

    kind: Literal["top1"] = "top1"
    capacity_factor: float = 1.25
    balance_weight: float = 0.01
    jitter: float = 0.01
    prioritized: bool = False

    k: ClassVar[int] = 1
    experts_per_token: ClassVar[float] = 1
    router_width: ClassVar[int] = 1
    queues: ClassVar[bool] = True

    def check(self, num_experts: int, path: str) -> None:
        _at_most(num_experts, 1, path, "one choice a token")
        _capacity(self.capacity_factor, path)
        _not_negative(path, balance_weight=self.balance_weight)
        if not 0 <= self.jitter < 1:
            raise ValueError(f"{path}.jitter={self.jitter} must lie in [0, 1)")

    @property
    def sees_later_tokens(self) -> bool:
        return self.prioritized


@dataclass(frozen=True, kw_only=True)
class DroplessConfig:
    """Top-k without a capacity: no token is dropped, experts get as many as chose them (MegaBlocks, arXiv:2211.15841).

    Weights are normalised over the k choices; balance_weight as in Top2Config.
    """

    kind: Literal["dropless"] = "dropless"
    k: int = 2
    balance_weight: float = 0.01

    router_width: ClassVar[int] = 1
    queues: ClassVar[bool] = False
    sees_later_tokens: ClassVar[bool] = False

    @property
    def experts_per_token(self) -> float:
        return self.k

    def check(self, num_experts: int, path: str) -> None:
        _at_most(num_experts, self.k, path)
        _not_negative(path, balance_weight=self.balance_weight)


@dataclass(frozen=True, kw_only=True)
class NoisyTopKConfig:
    """Noisy top-k gating (Shazeer et al. 2017, arXiv:1701.06538). capacity_factor 0: no capacity, as in the paper.

    importance_weight, load_weight: of CV² of importance and of load; 0.01 for multilingual translation there.
    """

    kind: Literal["noisy_topk"] = "noisy_topk"
    k: int = 2
    capacity_factor: float = 0.0
    importance_weight: float = 0.01
    load_weight: float = 0.01

    router_width: ClassVar[int] = 2
    queues: ClassVar[bool] = True
    sees_later_tokens: ClassVar[bool] = False

    @property
    def experts_per_token(self) -> float:
        return self.k

    def check(self, num_experts: int, path: str) -> None:
        _at_most(num_experts, self.k, path)
        _not_negative(
            path,
            capacity_factor=self.capacity_factor,
            importance_weight=self.importance_weight,
            load_weight=self.load_weight,
        )


@dataclass(frozen=True, kw_only=True)
class HierarchicalConfig:
    """Two levels of noisy top-k gates (Shazeer et al. 2017, appendix B): `groups` of experts, k at each level, so k²
    experts a token. The other fields as in NoisyTopKConfig."""

    kind: Literal["hierarchical"] = "hierarchical"
    groups: int = 2
    k: int = 2
    capacity_factor: float = 0.0
    importance_weight: float = 0.01
    load_weight: float = 0.01

    router_width: ClassVar[int] = 2
    queues: ClassVar[bool] = True
    sees_later_tokens: ClassVar[bool] = False

    @property
    def experts_per_token(self) -> float:
        return self.k**2

    def check(self, num_experts: int, path: str) -> None:
        if self.groups < 2 or num_experts % self.groups:
            fitting = [n for n in range(2, num_experts) if num_experts % n == 0]
            choices = f"choose one of {', '.join(map(str, fitting))}" if fitting else "no number of groups does"
            raise ValueError(
                f"{path}.groups={self.groups} does not divide model.moe.num_experts={num_experts}; {choices}"
            )
        _at_most(self.groups, self.k, path, what="groups")
        _at_most(num_experts // self.groups, self.k, path, what="experts of a group")
        _not_negative(
            path,
            capacity_factor=self.capacity_factor,
            importance_weight=self.importance_weight,
            load_weight=self.load_weight,
        )


@dataclass(frozen=True, kw_only=True)
class BalancedConfig:
    """Strictly balanced gating (Shazeer et al. 2017, appendix F): each expert takes its k·|X|/E best tokens in
    training, and those above its learned threshold afterwards. threshold_weight: of L_batchwise."""

    kind: Literal["balanced"] = "balanced"
    k: int = 2
    threshold_weight: float = 0.01

    router_width: ClassVar[int] = 1
    queues: ClassVar[bool] = False
    sees_later_tokens: ClassVar[bool] = False  # its training mask does, its thresholds do not: see ModelConfig

    @property
    def experts_per_token(self) -> float:
        return self.k

    def check(self, num_experts: int, path: str) -> None:
        _at_most(num_experts, self.k, path)
        if not self.threshold_weight > 0:
            raise ValueError(
                f"{path}.threshold_weight={self.threshold_weight} must be positive: thresholds learn by it"
            )


@dataclass(frozen=True, kw_only=True)
class ExpertChoiceConfig:
    """Expert choice (arXiv:2202.09368): each expert takes its `capacity_factor` · S / E best tokens. Encoder only."""

    kind: Literal["expert_choice"] = "expert_choice"
    capacity_factor: float = 2.0

    router_width: ClassVar[int] = 1
    queues: ClassVar[bool] = False
    sees_later_tokens: ClassVar[bool] = True

    @property
    def experts_per_token(self) -> float:
        return self.capacity_factor

    def check(self, num_experts: int, path: str) -> None:
        _capacity(self.capacity_factor, path)
        if self.capacity_factor > num_experts:
            raise ValueError(
                f"{path}.capacity_factor={self.capacity_factor} is more than the {num_experts} experts there are"
            )


GateConfig = (
    Top2Config
    | Top1Config
    | DroplessConfig
    | NoisyTopKConfig
    | HierarchicalConfig
    | BalancedConfig
    | ExpertChoiceConfig
)


def exact_factor(factor: float) -> Fraction:
    """The decimal that a user wrote, up to nine digits after the point: 1.1 is 11/10, as no float is."""
    return Fraction(str(factor)).limit_denominator(10**9)


def capacity_of(factor: float, k: float, num_tokens: int, num_experts: int) -> int:
    """C of a group of `num_tokens`: ceil(factor · k · S / E) in exact arithmetic, at least 1."""
    return max(1, -(-exact_factor(factor) * exact_factor(k) * num_tokens // num_experts))


def training_capacity(gate: GateConfig, num_tokens: int, num_experts: int) -> int | None:
    """Rows of an expert and group in training; None where it gets as many as chose it."""
    if isinstance(gate, DroplessConfig):
        return None
    if isinstance(gate, BalancedConfig | ExpertChoiceConfig):
        return capacity_of(1.0, gate.experts_per_token, num_tokens, num_experts)
    factor = gate.capacity_factor
    return capacity_of(factor, gate.experts_per_token, num_tokens, num_experts) if factor else None


def _at_most(available: int, k: int, path: str, why: str = "", what: str = "experts") -> None:
    if k < 1:
        raise ValueError(f"{path}.k={k} must be at least 1")
    if k > available:
        asked = why or f"{path}.k={k} choices"
        raise ValueError(f"{path}: {asked} need at least {k} {what}, there are {available}")


def _capacity(factor: float, path: str) -> None:
    if not factor > 0:
        raise ValueError(
            f"{path}.capacity_factor={factor} gives experts no slot and would drop every token; 1.0 is a fair share"
        )


def _not_negative(path: str, **values: float) -> None:
    for name, value in values.items():
        if value < 0:
            raise ValueError(f"{path}.{name}={value} must not be negative")
