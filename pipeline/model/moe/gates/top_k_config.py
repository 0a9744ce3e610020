"""Configurations of the general top-k gate and of the one without a capacity. Free of torch, so that they load fast."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pipeline.model.moe.gates import checks


@dataclass(frozen=True, kw_only=True)
class TopKConfig:
    """Top-k with or without a capacity, for many small experts (fine-grained experts: DeepSeekMoE, arXiv:2401.06066).

    k: experts that each token chooses.
    normalize: weights are gates divided by their sum over the k choices, before capacity; false leaves the gates as
        they are (as in DeepSeekMoE). With one choice false is needed, because the quotient is always 1.
    score: `softmax` over the experts, or `sigmoid` of each expert's logit (DeepSeek-V3, arXiv:2412.19437).
    capacity_factor: slots of an expert in a group in training, in fair shares of k choices a token; 0 is no capacity.
    balance_weight: weight of the balance loss, in which all k choices count. It is 1 when experts are used alike.
    bias_rate: balances without a loss (arXiv:2408.15664; 0.001 there). Each expert has a bias, which is added to its
        score when experts are chosen, and not to its weight. After each step it rises by this rate if fewer of the
        step's choices than a fair share were of the expert, and falls by it if more were. 0 is no bias.
    expert_nodes: nodes that the experts are spread over, equally many on each, in the order of their numbers. This is a
        property of the model: the topology of a run may be another one.
    max_nodes: nodes that the experts of a token may be on (node-limited routing: DeepSeek-V3, section 2.1.2). A token
        has the nodes with the largest sums of their k / max_nodes best scores, with the bias if there is one. As many
        as expert_nodes is no limit.
    """

    kind: Literal["topk"] = "topk"
    k: int = 2
    score: Literal["softmax", "sigmoid"] = "softmax"
    capacity_factor: float = 1.25
    balance_weight: float = 0.01
    bias_rate: float = 0.0
    expert_nodes: int = 1
    max_nodes: int = 1
    normalize: bool = True

    queues: ClassVar[bool] = True
    experts_choose: ClassVar[bool] = False
    encoder_only: ClassVar[str] = ""
    decoder_caution: ClassVar[str] = ""

    @property
    def limits_nodes(self) -> bool:
        return self.max_nodes < self.expert_nodes

    @property
    def unprunable(self) -> str:
        return "it chooses among nodes with equally many experts" if self.limits_nodes else ""

    @property
    def experts_per_token(self) -> float:
        return self.k

    @property
    def training_factor(self) -> float:
        return self.capacity_factor

    @property
    def unexportable(self) -> str:
        if self.score == "sigmoid":
            return "its scores are sigmoids"
        if self.bias_rate:
            return "a bias changes its choices"
        if self.limits_nodes:
            return "it limits the nodes of a token"
        if not self.normalize:
            return "its weights are not normalised"
        return "" if self.k == 2 else f"it gives every token k={self.k} experts"

    def check(self, num_experts: int, path: str) -> None:
        checks.choices(num_experts, self.k, path)
        checks.not_negative(self, path, "capacity_factor", "balance_weight", "bias_rate")
        checks.nodes(num_experts, self.k, self.expert_nodes, self.max_nodes, path)
        if (self.balance_weight or self.bias_rate) and self.k == num_experts:
            raise ValueError(
                f"{path}.k={self.k}: every token has all {num_experts} experts, so none can be used more than another; "
                f"choose a smaller k, or {path}.balance_weight=0 {path}.bias_rate=0"
            )

    def router_shapes(self, num_experts: int, dim: int) -> Mapping[str, tuple[int, ...]]:
        return {"wg_EM": (num_experts, dim), **({"bias_E": (num_experts,)} if self.bias_rate else {})}


@dataclass(frozen=True, kw_only=True)
class DroplessConfig:
    """Top-k without a capacity: no token is dropped, an expert takes all that chose it (MegaBlocks, arXiv:2211.15841).

    k: experts that each token chooses.
    balance_weight: weight of the balance loss over first choices. It is 1 when experts are used alike.
    normalize: weights are gates divided by their sum over the k choices; false leaves the gates as they are, which a
        single choice needs.
    """

    kind: Literal["dropless"] = "dropless"
    k: int = 2
    balance_weight: float = 0.01
    normalize: bool = True

    queues: ClassVar[bool] = False
    experts_choose: ClassVar[bool] = False
    training_factor: ClassVar[float] = 0
    encoder_only: ClassVar[str] = ""
    decoder_caution: ClassVar[str] = ""
    unprunable: ClassVar[str] = ""

    @property
    def experts_per_token(self) -> float:
        return self.k

    @property
    def unexportable(self) -> str:
        if not self.normalize:
            return "its weights are not normalised"
        return "" if self.k == 2 else f"it gives every token k={self.k} experts"

    def check(self, num_experts: int, path: str) -> None:
        checks.choices(num_experts, self.k, path)
        checks.not_negative(self, path, "balance_weight")

    def router_shapes(self, num_experts: int, dim: int) -> Mapping[str, tuple[int, ...]]:
        return {"wg_EM": (num_experts, dim)}
