"""Configuration of the Transformer; free of torch so that it loads fast."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class MoEConfig:
    """Mixture-of-Experts layers (GShard, arXiv:2006.16668). num_experts = 0 makes every layer dense.

    every: each `every`-th layer is a MoE layer, the first layers dense (2: layers 2, 4, 6 … counted from 1).
    capacity_factor: slots an expert gets in a group, in units of its fair share of two choices a token, in training.
    aux_weight: weight of the balance loss E² · line 13 of Algorithm 1 (1 when balanced), summed over layers.
    """

    num_experts: int = 0
    expert_dim: int = 0
    every: int = 2
    capacity_factor: float = 1.0
    aux_weight: float = 0.01

    def __post_init__(self) -> None:
        if self.num_experts == 0:
            return
        if self.num_experts < 2:
            raise ValueError(
                f"model.moe.num_experts={self.num_experts}: top-2 gating needs 2 or more; 0 is a dense model"
            )
        if self.expert_dim < 1:
            raise ValueError(f"model.moe.expert_dim={self.expert_dim} must be positive")
        if self.every < 1:
            raise ValueError(f"model.moe.every={self.every} must be at least 1")
        if not self.capacity_factor > 0:
            raise ValueError(f"model.moe.capacity_factor={self.capacity_factor} must be positive; 1.0 is a fair share")
        if self.aux_weight < 0:
            raise ValueError(f"model.moe.aux_weight={self.aux_weight} must not be negative")


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
