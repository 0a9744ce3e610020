"""Matmul FLOPs of the model: nominal, useful and executed.

- nominal: real tokens, each with the number of experts that its gate gives a token. They depend on the text and the
  model alone, so systems with equal nominal FLOPs may be compared.
- useful: real tokens with the expert choices that were served. A choice that capacity or a random draw dropped did no
  work, so it is not useful.
- executed: all products, with those of padding and of expert rows that no token fills.

A multiply-add counts two. Attention counts every query with every key of its own sentence (nominal and useful) or row
(executed). Embedding look-ups, norms, softmax and the optimizer are not counted; the router is. A training step counts
as three forward passes: forward, gradient to inputs, gradient to weights.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig
from pipeline.model.moe.gates.capacity import router_outputs

if TYPE_CHECKING:  # numpy loads slowly, and the command line does not need it
    from numpy.typing import NDArray

TRAINING_FACTOR = 3
EXPERTS = "experts"  # the part of the FLOPs that depends on routing


@dataclass(frozen=True, kw_only=True)
class Forward:
    """Forward FLOPs per token of each side, and per query-key pair of each attention."""

    source_token: float = 0
    target_token: float = 0
    encoder_attention: float = 0
    decoder_attention: float = 0
    cross_attention: float = 0

    def of_sentences(self, source_lengths: "NDArray[Any]", target_lengths: "NDArray[Any]") -> float:
        """Return the useful FLOPs of sentence pairs with these lengths in tokens, int arrays [n]."""
        source, target = source_lengths.astype("f8"), target_lengths.astype("f8")
        return float(
            self.source_token * source.sum()
            + self.target_token * target.sum()
            + self.encoder_attention * (source @ source)
            + self.decoder_attention * (target @ target)
            + self.cross_attention * (source @ target)
        )

    def of_rows(self, rows: int, source: int, target: int) -> float:
        """Return the FLOPs of `rows` rows, each with `source` and `target` tokens."""
        return rows * (
            self.source_token * source
            + self.target_token * target
            + self.encoder_attention * source * source
            + self.decoder_attention * target * target
            + self.cross_attention * source * target
        )

    def of_shape(self, shape: GroupShape) -> float:
        """Return the FLOPs of one group with all its padding, and the nominal number of experts for each token."""
        return self.of_rows(shape.rows, shape.source, shape.target)


def forward_flops(config: ModelConfig, target_vocabulary: int) -> Forward:
    """Return nominal forward FLOPs. A MoE layer counts router, shared networks and `experts_per_token` experts."""
    return _sum(forward_parts(config, target_vocabulary))


def forward_flops_without_experts(config: ModelConfig, target_vocabulary: int) -> Forward:
    """Return `forward_flops` without the experts, whose FLOPs depend on the routing."""
    parts = forward_parts(config, target_vocabulary)
    return _sum({name: part for name, part in parts.items() if name != EXPERTS})


def expert_row_flops(config: ModelConfig) -> float:
    """Return the forward FLOPs of one row of an expert: of one served choice or one empty slot."""
    return 2 * config.ffn_matrices * config.dim * config.moe.expert_dim


def _sum(parts: Mapping[str, Forward]) -> Forward:
    names = [field.name for field in fields(Forward)]
    return Forward(**{name: sum(getattr(part, name) for part in parts.values()) for name in names})


def forward_parts(config: ModelConfig, target_vocabulary: int) -> dict[str, Forward]:
    """Return `forward_flops` by kind of work."""
    M, ND = config.dim, config.heads * config.key_dim
    projections, keys_values = 2 * 4 * M * ND, 2 * 2 * M * ND
    pair = 2 * 2 * ND  # score and weighted sum of a query and a key
    attention = Forward(
        # cross-attention makes its keys and values from source tokens
        source_token=config.encoder_layers * projections + config.decoder_layers * keys_values,
        target_token=config.decoder_layers * (projections + keys_values),
        encoder_attention=config.encoder_layers * pair,
        decoder_attention=config.decoder_layers * pair,
        cross_attention=config.decoder_layers * pair,
    )
    source, target = (_feed_forward(config, decoder=decoder) for decoder in (False, True))
    return {
        "attention": attention,
        **{part: Forward(source_token=source[part], target_token=target[part]) for part in source},
        "logits": Forward(target_token=2 * M * target_vocabulary),
    }


def _feed_forward(config: ModelConfig, *, decoder: bool) -> dict[str, float]:
    """Return the FLOPs of the feed-forward parts of one side for one token, by kind of work."""
    num_layers = config.decoder_layers if decoder else config.encoder_layers
    num_moe, M, moe = config.num_moe_layers(num_layers), config.dim, config.moe
    num_shared = num_moe if moe.conditional else 0
    dense = 2 * config.ffn_matrices * M * config.ffn_dim
    gate = moe.gate_of(decoder=decoder)
    return {
        "dense": (num_layers - num_moe + num_shared) * dense + num_moe * 2 * config.ffn_matrices * M * moe.shared_dim,
        "router": num_moe * 2 * M * router_outputs(gate, moe.num_experts) + num_shared * 2 * M,
        EXPERTS: num_moe * gate.experts_per_token * expert_row_flops(config),
    }


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """Numbers of parameters.

    total: all parameters.
    active: all parameters but those of the experts that a token does not visit.
    """

    total: int
    active: int


def network_parameters(config: ModelConfig, hidden: int) -> int:
    """Return the number of parameters of a feed-forward network or expert with so many hidden units."""
    return config.ffn_matrices * config.dim * hidden + config.biases * (hidden + config.dim)


def count_parameters(
    config: ModelConfig, *, source_vocabulary: int, target_vocabulary: int, shared: bool
) -> ParameterCount:
    """Count the parameters by formula. A test compares them with those of the built model."""
    M, ND, E = config.dim, config.heads * config.key_dim, config.moe.num_experts
    embeddings = M * (target_vocabulary + (0 if shared else source_vocabulary))
    norms = config.norm_vectors * M
    attention = 4 * M * ND + norms + config.biases * (3 * ND + M)
    total = embeddings + 2 * norms
    active = total
    sides = ((config.encoder_layers, 1, False), (config.decoder_layers, 2, True))
    for num_layers, attentions, decoder in sides:
        num_moe = config.num_moe_layers(num_layers)
        common = num_layers * (attentions * attention + norms)
        common += (num_layers - num_moe) * network_parameters(config, config.ffn_dim)
        total, active = total + common, active + common
        if num_moe:
            gate = config.moe.gate_of(decoder=decoder)
            routed = sum(map(math.prod, gate.router_shapes(E, M).values()))
            routed += network_parameters(config, config.moe.shared_dim) if config.moe.shared_experts else 0
            routed += network_parameters(config, config.ffn_dim) + M if config.moe.conditional else 0
            expert = network_parameters(config, config.moe.expert_dim)
            total += num_moe * (routed + E * expert)
            active += num_moe * (routed + round(gate.experts_per_token * expert))
    return ParameterCount(total=total, active=active)
