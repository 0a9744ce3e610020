"""Matmul FLOPs of the model: what real tokens need (useful) and what fixed shapes execute.

A multiply-add counts two. Attention counts every query against every key of its own sentence (useful) or row
(executed). Embedding look-ups, norms, softmax and the optimizer count nothing; the router counts. A training step is
three forward passes: forward, gradient to inputs, gradient to weights.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig
from pipeline.model.gate_config import BalancedConfig, GateConfig, HierarchicalConfig

if TYPE_CHECKING:  # numpy takes its time to load, and the command line needs none of it
    from numpy.typing import NDArray

TRAINING_FACTOR = 3


@dataclass(frozen=True, kw_only=True)
class Forward:
    """Forward FLOPs per token of each side, and per query-key pair of each attention."""

    source_token: float
    target_token: float
    encoder_attention: float
    decoder_attention: float
    cross_attention: float

    def of_sentences(self, source_lengths: "NDArray[Any]", target_lengths: "NDArray[Any]") -> float:
        """Useful FLOPs of sentence pairs with these lengths in tokens, int arrays [n]."""
        source, target = source_lengths.astype("f8"), target_lengths.astype("f8")
        return float(
            self.source_token * source.sum()
            + self.target_token * target.sum()
            + self.encoder_attention * (source @ source)
            + self.decoder_attention * (target @ target)
            + self.cross_attention * (source @ target)
        )

    def of_rows(self, rows: int, source: int, target: int) -> float:
        """FLOPs of `rows` rows of `source` and `target` tokens."""
        return rows * (
            self.source_token * source
            + self.target_token * target
            + self.encoder_attention * source * source
            + self.decoder_attention * target * target
            + self.cross_attention * source * target
        )

    def of_shape(self, shape: GroupShape) -> float:
        """Executed FLOPs of one group, at the gate's experts a token."""
        return self.of_rows(shape.rows, shape.source, shape.target)


def forward_flops(config: ModelConfig, target_vocabulary: int) -> Forward:
    """The model's forward FLOPs; a MoE layer counts the experts its gate gives a token, router and shared network."""
    M, ND = config.dim, config.heads * config.key_dim
    projections = 2 * 4 * M * ND
    encoder = config.encoder_layers * projections + _feed_forward(config, decoder=False)
    encoder += config.decoder_layers * 2 * 2 * M * ND  # keys and values of cross-attention are made from source tokens
    decoder = config.decoder_layers * (projections + 2 * 2 * M * ND) + _feed_forward(config, decoder=True)
    pair = 2 * 2 * ND  # scores and weighted sum
    return Forward(
        source_token=encoder,
        target_token=decoder + 2 * M * target_vocabulary,
        encoder_attention=config.encoder_layers * pair,
        decoder_attention=config.decoder_layers * pair,
        cross_attention=config.decoder_layers * pair,
    )


def _feed_forward(config: ModelConfig, *, decoder: bool) -> float:
    num_layers = config.decoder_layers if decoder else config.encoder_layers
    num_moe, M, moe = config.num_moe_layers(num_layers), config.dim, config.moe
    dense = 2 * 2 * M * config.ffn_dim
    layers: float = (num_layers - num_moe) * dense
    if num_moe:
        gate = moe.gate_of(decoder=decoder)
        experts = gate.experts_per_token * 2 * 2 * M * moe.expert_dim
        shared = dense + 2 * M if moe.conditional else 0
        layers += num_moe * (experts + 2 * M * _router_width(config, gate) + shared)
    return layers


def _router_width(config: ModelConfig, gate: GateConfig) -> int:
    """Numbers that a router computes for a token."""
    groups = gate.groups if isinstance(gate, HierarchicalConfig) else 0
    return gate.router_width * (config.moe.num_experts + groups)


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """total: all parameters. active: without the experts that a token does not visit."""

    total: int
    active: int


def count_parameters(
    config: ModelConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool
) -> ParameterCount:
    """By hand formula; equal to the built model's (tested)."""
    M, ND, E = config.dim, config.heads * config.key_dim, config.moe.num_experts
    embeddings = M * (target_vocabulary + (0 if shared else source_vocabulary))
    norms = 2 * M
    total = embeddings + 2 * norms
    active = total
    sides = ((config.encoder_layers, 1, False), (config.decoder_layers, 2, True))
    for num_layers, attentions, decoder in sides:
        num_moe = config.num_moe_layers(num_layers)
        common = num_layers * (attentions * (4 * M * ND + norms) + norms)
        common += (num_layers - num_moe) * 2 * M * config.ffn_dim
        total, active = total + common, active + common
        if num_moe:
            gate = config.moe.gate_of(decoder=decoder)
            routed = M * _router_width(config, gate) + (E if isinstance(gate, BalancedConfig) else 0)
            routed += 2 * M * config.ffn_dim + M if config.moe.conditional else 0
            expert = 2 * M * config.moe.expert_dim
            total += num_moe * (routed + E * expert)
            active += num_moe * (routed + round(gate.experts_per_token * expert))
    return ParameterCount(total=total, active=active)
