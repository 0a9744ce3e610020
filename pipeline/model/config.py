"""Configuration of the Transformer. Free of torch, so that it loads fast."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from pipeline.model.moe.gates.config import GateConfig, Top2Config
from pipeline.model.moe.gates.task_config import TaskConfig

# The activations that backward computes again instead of keeping them: see `Transformer.recompute`.
Recompute = Literal["none", "selective", "layers", "all"]

Activation = Literal["relu", "swiglu"]
NormKind = Literal["layer", "rms"]

# Options that models of earlier versions did not have, with the values of those models. Stage keys, checkpoints and run
# records leave an option out while it has this value, so they stay as they were.
UNSET = {
    "activation": "relu",
    "norm": "layer",
    "shared_experts": 0,
    "biases": False,
    "output_scale": 1.0,
    "expert_nodes": 1,
    "max_nodes": 1,
    "normalize": True,
}


@dataclass(frozen=True, kw_only=True)
class ConditionalConfig:
    """Conditional MoE routing (arXiv:2212.07571): a gate for each token between the experts and a shared dense network.

    budget: share p of the output that the loss gives to the experts.
    weight: weight of that loss.
    drop: probability of setting a token's gate to zero in training, so that only the shared network serves it.
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
    """Mixture-of-Experts layers (GShard, arXiv:2006.16668).

    num_experts: E, experts of each MoE layer; 0 makes every layer dense.
    expert_dim: hidden size of an expert.
    shared_experts: experts of size expert_dim that serve every token, besides those that the gate chooses (DeepSeekMoE,
        arXiv:2401.06066). Their outputs are added without a weight.
    every: each `every`-th layer is a MoE layer; with 2, these are layers 2, 4, 6 … counted from 1.
    gate: gate of every MoE layer.
    encoder_gate: another gate for the encoder's MoE layers; None means the same gate.
    dispatch: `gather` moves rows by index. `einsum` is Algorithm 2 as printed, a reference for small E with the same
        result, whose cost grows with E · C.
    z_weight: weight of the router z-loss (ST-MoE, arXiv:2202.08906, which has 0.001).
    output_masking: probability of masking an expert's output for a token in training (EOM, arXiv:2212.07571; 0.2 in
        NLLB).
    conditional: a gate between the experts and a shared network, or None.
    output_scale: factor on the sum of a token's experts. NLLB-MoE has 0.8, because it was trained with masked outputs
        that were not divided by 1 - output_masking.
    """

    num_experts: int = 0
    expert_dim: int = 0
    shared_experts: int = 0
    every: int = 2
    gate: GateConfig = field(default_factory=Top2Config)
    encoder_gate: GateConfig | None = None
    dispatch: Literal["gather", "einsum"] = "gather"
    z_weight: float = 0.0
    output_masking: float = 0.0
    conditional: ConditionalConfig | None = None
    output_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.num_experts == 0:
            return
        if self.num_experts < 2:
            raise ValueError(
                f"model.moe.num_experts={self.num_experts}: a gate needs 2 or more to choose from; 0 is a dense model"
            )
        if self.expert_dim < 1:
            raise ValueError(f"model.moe.expert_dim={self.expert_dim} must be positive")
        if self.shared_experts < 0:
            raise ValueError(
                f"model.moe.shared_experts={self.shared_experts} must not be negative; 0 is none, 1 or 2 are usual"
            )
        if self.every < 1:
            raise ValueError(f"model.moe.every={self.every} must be at least 1")
        if self.z_weight < 0:
            raise ValueError(f"model.moe.z_weight={self.z_weight} must not be negative")
        if not 0 < self.output_scale <= 1:
            raise ValueError(f"model.moe.output_scale={self.output_scale} must lie in (0, 1]; 1 changes nothing")
        if not 0 <= self.output_masking < 1:
            raise ValueError(f"model.moe.output_masking={self.output_masking} must lie in [0, 1)")
        self.gate.check(self.num_experts, "model.moe.gate")
        if self.encoder_gate is not None:
            self.encoder_gate.check(self.num_experts, "model.moe.encoder_gate")
        if self.gate.encoder_only:
            raise ValueError(
                f"model.moe.gate: {self.gate.encoder_only} decides about a token by looking at later ones, which a "
                "decoder does not have when it translates; set it as model.moe.encoder_gate and keep another gate for "
                "the decoder"
            )

    @property
    def shared_dim(self) -> int:
        """Hidden units of all shared experts together, which are one network of this size."""
        return self.shared_experts * self.expert_dim

    def cautions(self) -> list[str]:
        """Return warnings about settings that are legal and may surprise, for people to read before a run."""
        return (
            [f"model.moe.gate: {self.gate.decoder_caution}"] if self.num_experts and self.gate.decoder_caution else []
        )

    def check_training(self) -> None:
        """Raise ValueError if the loss of the translation cannot train a router. A model of 0.2 may have been so."""
        for name, gate in (("gate", self.gate), ("encoder_gate", self.encoder_gate)):
            if self.num_experts and getattr(gate, "normalize", False) and getattr(gate, "k", 0) == 1:
                raise ValueError(
                    f"model.moe.{name}: with k=1 and normalize=true the chosen expert always has the weight 1, so that "
                    f"the router does not learn from the translation; set model.moe.{name}.normalize=false"
                )

    def check_evaluation_capacity(self, factor: float) -> None:
        """Raise ValueError if decoding is to have a capacity and a gate has none."""
        for path, gate in (("gate", self.gate), ("encoder_gate", self.encoder_gate)):
            if factor and self.num_experts and gate is not None and not gate.queues:
                raise ValueError(
                    f"decode.capacity_factor={factor}: tokens do not queue for experts behind model.moe.{path}="
                    f"{gate.kind}, so there is none to drop; set it to 0"
                )

    def with_pairs(self, pairs: Sequence[str]) -> "MoEConfig":
        """Return the layers of a run with these pairs, `de:en`, for gates that choose by task.

        Raises ValueError as `TaskConfig.with_pairs`.
        """
        if not self.num_experts:
            return self
        gate, encoder_gate = self.gate, self.encoder_gate
        if isinstance(gate, TaskConfig):
            gate = gate.with_pairs(pairs, "model.moe.gate")
        if isinstance(encoder_gate, TaskConfig):
            encoder_gate = encoder_gate.with_pairs(pairs, "model.moe.encoder_gate")
        return replace(self, gate=gate, encoder_gate=encoder_gate)

    @property
    def pairs(self) -> list[str]:
        """The pairs among which a gate tells tasks apart, in the order of their numbers; none without such a gate."""
        gates = (self.gate, self.encoder_gate) if self.num_experts else ()
        return next((gate.pairs.split() for gate in gates if isinstance(gate, TaskConfig)), [])

    def gate_of(self, *, decoder: bool) -> GateConfig:
        """Return the gate of the decoder's or the encoder's MoE layers."""
        return self.gate if decoder or self.encoder_gate is None else self.encoder_gate


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A pre-norm encoder-decoder Transformer.

    dim: M, size of the model.
    ffn_dim: H, hidden size of dense feed-forward networks.
    heads: N, attention heads.
    head_dim: D, size of a head; 0 means dim / heads.
    encoder_layers: layers of the encoder.
    decoder_layers: layers of the decoder.
    dropout: probability of dropping an activation in training, 0 to 1.
    activation: of feed-forward networks and experts. `swiglu` multiplies SiLU of one projection by another projection
        (arXiv:2002.05202), so a network has three matrices instead of two.
    norm: `layer` is LayerNorm; `rms` is RMSNorm (arXiv:1910.07467), which subtracts no mean and has no bias.
    moe: the Mixture-of-Experts layers.
    biases: projections of attention, feed-forward networks and experts have biases, as in M2M100 and NLLB.
    """

    dim: int
    ffn_dim: int
    heads: int
    head_dim: int = 0
    encoder_layers: int
    decoder_layers: int
    dropout: float
    activation: Activation = "relu"
    norm: NormKind = "layer"
    moe: MoEConfig = field(default_factory=MoEConfig)
    biases: bool = False

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
        if self.biases and self.activation != "relu":
            raise ValueError(
                f"model.biases=true with model.activation={self.activation}: gated networks have no biases; set "
                "model.activation=relu, or model.biases=false"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as plain values, without those of UNSET."""
        return asdict(self, dict_factory=set_values)

    @property
    def key_dim(self) -> int:
        """Size of one head, D."""
        return self.head_dim or self.dim // self.heads

    @property
    def ffn_matrices(self) -> int:
        """Number of matrices of a feed-forward network or expert. The last one is [H, M], the others are [M, H]."""
        return 3 if self.activation == "swiglu" else 2

    @property
    def norm_vectors(self) -> int:
        """Number of parameters [M] of a norm."""
        return 1 if self.norm == "rms" else 2

    def is_moe(self, layer: int) -> bool:
        """Return True if this layer, counted from 1, is a MoE layer."""
        return self.moe.num_experts > 0 and layer % self.moe.every == 0

    def num_moe_layers(self, num_layers: int) -> int:
        return sum(self.is_moe(layer) for layer in range(1, num_layers + 1))

    def moe_layers(self) -> list[str]:
        """Name the MoE layers, encoder first, layers counted from 1: `encoder.2`."""
        sides = (("encoder", self.encoder_layers), ("decoder", self.decoder_layers))
        return [f"{side}.{layer}" for side, layers in sides for layer in range(1, layers + 1) if self.is_moe(layer)]


def set_values(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass without options that are UNSET."""
    return {key: value for key, value in items if key not in UNSET or value != UNSET[key]}
