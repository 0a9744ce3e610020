"""Matmul FLOPs of the model: what real tokens need (useful) and what fixed shapes execute.

A multiply-add counts two. Attention counts every query against every key of its own sentence (useful) or row
(executed). Embedding look-ups, norms, softmax and the optimizer count nothing; the router counts. A training step is
three forward passes: forward, gradient to inputs, gradient to weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig

TRAINING_FACTOR = 3
TOP_K = 2


@dataclass(frozen=True, kw_only=True)
class Forward:
    """Forward FLOPs per token of each side, and per query-key pair of each attention."""

    source_token: float
    target_token: float
    encoder_attention: float
    decoder_attention: float
    cross_attention: float

    def of_sentences(self, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> float:
        """Useful FLOPs of sentence pairs with these lengths in tokens."""
        return sum(self.of_rows(1, s, t) for s, t in zip(source_lengths, target_lengths, strict=True))

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
        """Executed FLOPs of one group, at two expert slots a token."""
        return self.of_rows(shape.rows, shape.source, shape.target)


def forward_flops(config: ModelConfig, target_vocabulary: int) -> Forward:
    """The model's forward FLOPs; a MoE layer counts top-2 experts and the router."""
    M, ND = config.dim, config.heads * config.key_dim
    projections = 2 * 4 * M * ND
    encoder = config.encoder_layers * projections + _feed_forward(config, config.encoder_layers)
    encoder += config.decoder_layers * 2 * 2 * M * ND  # keys and values of cross-attention are made from source tokens
    decoder = config.decoder_layers * (projections + 2 * 2 * M * ND) + _feed_forward(config, config.decoder_layers)
    pair = 2 * 2 * ND  # scores and weighted sum
    return Forward(
        source_token=encoder,
        target_token=decoder + 2 * M * target_vocabulary,
        encoder_attention=config.encoder_layers * pair,
        decoder_attention=config.decoder_layers * pair,
        cross_attention=config.decoder_layers * pair,
    )


def _feed_forward(config: ModelConfig, num_layers: int) -> float:
    num_moe = config.num_moe_layers(num_layers)
    dense = (num_layers - num_moe) * 2 * 2 * config.dim * config.ffn_dim
    expert = TOP_K * 2 * 2 * config.dim * config.moe.expert_dim + 2 * config.dim * config.moe.num_experts
    return dense + num_moe * expert


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """total: all parameters. active: without the experts that a token does not visit (top-2 of E)."""

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
    sides = ((config.encoder_layers, 1), (config.decoder_layers, 2))
    for num_layers, attentions in sides:
        num_moe = config.num_moe_layers(num_layers)
        common = num_layers * (attentions * (4 * M * ND + norms) + norms)
        common += (num_layers - num_moe) * 2 * M * config.ffn_dim + num_moe * M * E
        expert = 2 * M * config.moe.expert_dim
        total += common + num_moe * E * expert
        active += common + num_moe * min(TOP_K, E) * expert
    return ParameterCount(total=total, active=active)
