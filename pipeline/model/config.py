"""Configuration of the Transformer; free of torch so that it loads fast."""

from dataclasses import dataclass, field
from typing import Literal

from pipeline.model.gate_config import GateConfig, Top2Config

# What backward computes again instead of the forward pass keeping it: see `Transformer.recompute`.
Recompute = Literal["none", "selective", "layers", "all"]


@dataclass(frozen=True, kw_only=True)
class ConditionalConfig:
    """Conditional MoE routing (arXiv:2212.07571): a gate between the experts and a shared dense network.

    budget: share p of the experts that the loss asks for. weight: of that loss. drop: probability with which a token's
    gate is zeroed in training, which leaves it to the shared network.
    """

    budget: float = 0.8
    weight: float = 0.01
    drop: float = 0.0

    def __post_init__(self) -> None:
        for name in ("budget", "drop"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"model.moe.conditional.{name}={getattr(self, name)} must lie in [0, 1]")
        if self.weight < 0:
            raise ValueError(f"model.moe.conditional.weight={self.weight} must not be negative")


@dataclass(frozen=True, kw_only=True)
class MoEConfig:
    """Mixture-of-Experts layers (GShard, arXiv:2006.16668). num_experts = 0 makes every layer dense.

    every: each `every`-th layer is a MoE layer, the first layers dense (2: layers 2, 4, 6 … counted from 1).
    gate: of every MoE layer; encoder_gate: another one for the encoder's. dispatch: `gather` over indices, or the
    `einsum` of Algorithm 2, whose cost grows with E · C (a reference for small E; the same result).
    z_weight: of the router z-loss (ST-MoE, arXiv:2202.08906; 0.001 there). output_masking: probability with which an
    expert's output for a token is masked in training (EOM, arXiv:2212.07571; 0.2 in NLLB). conditional: see there.
    """

    num_experts: int = 0
    expert_dim: int = 0
    every: int = 2
    gate: GateConfig = field(default_factory=Top2Config)
    encoder_gate: GateConfig | None = None
    dispatch: Literal["gather", "einsum"] = "gather"
    z_weight: float = 0.0
    output_masking: float = 0.0
    conditional: ConditionalConfig | None = None

    def __post_init__(self) -> None:
        if self.num_experts == 0:
            return
        if self.num_experts < 2:
            raise ValueError(
                f"model.moe.num_experts={self.num_experts}: a gate needs 2 or more to choose from; 0 is a dense model"
            )
        if self.expert_dim < 1:
            raise ValueError(f"model.moe.expert_dim={self.expert_dim} must be positive")
        if self.every < 1:
            raise ValueError(f"model.moe.every={self.every} must be at least 1")
        if self.z_weight < 0:
            raise ValueError(f"model.moe.z_weight={self.z_weight} must not be negative")
        if not 0 <= self.output_masking < 1:
            raise ValueError(f"model.moe.output_masking={self.output_masking} must lie in [0, 1)")
        self.gate.check(self.num_experts, "model.moe.gate")
        if self.encoder_gate is not None:
            self.encoder_gate.check(self.num_experts, "model.moe.encoder_gate")
        if self.gate.sees_later_tokens:
            what = "expert_choice" if self.gate.kind == "expert_choice" else "prioritized"
            raise ValueError(
                f"model.moe.gate: {what} decides about a token by looking at later ones, which a decoder does not have "
                "when it translates; set it as model.moe.encoder_gate and keep another gate for the decoder"
            )

    def cautions(self) -> list[str]:
        """What is legal and may surprise, for people to read before a run."""
        if self.num_experts and self.gate.kind == "balanced":
            return [
                "model.moe.gate: in the decoder the balanced gate's training mask looks at later tokens, which its "
                "thresholds cannot when it translates; as model.moe.encoder_gate it would not"
            ]
        return []

    def check_evaluation_capacity(self, factor: float) -> None:
        """Raise ValueError where decoding asks for a capacity that a gate does not have."""
        for path, gate in (("gate", self.gate), ("encoder_gate", self.encoder_gate)):
            if factor and self.num_experts and gate is not None and not gate.queues:
                raise ValueError(
                    f"decode.capacity_factor={factor}: tokens do not queue for experts behind model.moe.{path}="
                    f"{gate.kind}, so there is none to drop; set it to 0"
                )

    def gate_of(self, *, decoder: bool) -> GateConfig:
        """The gate of the encoder's or the decoder's MoE layers."""
        return self.gate if decoder or self.encoder_gate is None else self.encoder_gate


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Encoder-decoder Transformer, pre-norm. dim: M. ffn_dim: H. heads: N. head_dim: D, 0 means dim / heads."""

    dim: int
    ffn_dim: int
    heads: int
    head_dim: int = 0
    encoder_layers: int
    decoder_layers: int
    dropout: float
    moe: MoEConfig = field(default_factory=MoEConfig)

    def __post_init__(self) -> None:
        for name in ("dim", "ffn_dim", "heads", "encoder_layers", "decoder_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name}={getattr(self, name)} must be at least 1")
        if self.dim % 2 or self.dim < 4:
            raise ValueError(f"model.dim={self.dim} must be even and at least 4 (half sines, half cosines)")
        if self.head_dim < 0 or (self.head_dim == 0 and self.dim % self.heads):
            raise ValueError(
                f"model.dim={self.dim} is not divisible by model.heads={self.heads}; set model.head_dim, or another one"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout={self.dropout} must lie in [0, 1)")

    @property
    def key_dim(self) -> int:
        """D, the size of one head."""
        return self.head_dim or self.dim // self.heads

    def is_moe(self, layer: int) -> bool:
        """Whether layer `layer`, counted from 1, has a MoE feed-forward."""
        return self.moe.num_experts > 0 and layer % self.moe.every == 0

    def num_moe_layers(self, num_layers: int) -> int:
        return sum(self.is_moe(layer) for layer in range(1, num_layers + 1))

    def moe_layers(self) -> list[str]:
        """Names of the MoE layers, encoder first, layers counted from 1: `encoder.2`."""
        sides = (("encoder", self.encoder_layers), ("decoder", self.decoder_layers))
        return [f"{side}.{layer}" for side, layers in sides for layer in range(1, layers + 1) if self.is_moe(layer)]
