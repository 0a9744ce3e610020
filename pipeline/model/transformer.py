"""Encoder-decoder Transformer with Mixture-of-Experts layers, written for one device.

B rows, L length of a source row, T length of a target row, G groups, S tokens of a group (rows of the group times
length), M model, H hidden, V vocabulary.

Pre-norm with final norms, sinusoidal positions, embeddings times sqrt(M). Projections have biases only if the
configuration says so. Every random draw of a forward pass comes from torch's default generator, which the caller seeds
for each group (`pipeline.model.noise`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.batch.batch import Batch
from pipeline.model.attention import Attention, segment_mask
from pipeline.model.config import ModelConfig, Recompute
from pipeline.model.dropout import add_dropped, dropout
from pipeline.model.feed_forward import FeedForward
from pipeline.model.fused_attention import mask_dtype
from pipeline.model.loss import TokenLosses, token_losses, vocabulary_loss
from pipeline.model.moe.layer import MoE, MoEStatistics
from pipeline.model.moe.tokens import Tokens
from pipeline.model.norm import build_norm
from pipeline.model.recompute import recomputed

LookUp = Callable[[Tensor, Tensor], Tensor]  # takes tokens and a table [V, M], gives the rows of these tokens
FIRST_POSITION = 2  # M2M100 and NLLB count positions from the padding id, which is 1


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Sums over one batch.

    loss: smoothed cross-entropy, with gradient.
    nll_BT: cross-entropy of each token in nats, 0 on padding.
    statistics: one entry per MoE layer, in the order of `Transformer.moe_layers`.
    """

    loss: Tensor
    nll_BT: Tensor
    statistics: list[MoEStatistics]

    def share(self, *, target_tokens: int, nonempty_groups: int) -> Tensor:
        """Return what this micro-batch adds to the loss of a step with so many target tokens and non-empty groups."""
        loss = self.loss / target_tokens
        if not self.statistics:
            return loss
        return loss + torch.stack([layer.loss for layer in self.statistics]).sum() / nonempty_groups


def sinusoids(num_positions: int, dim: int) -> Tensor:
    """Return the table [num_positions, M]: sines, then cosines, with the divisor half - 1 of M2M100."""
    half = dim // 2
    rate = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000.0) / max(half - 1, 1)))
    angle = torch.arange(num_positions, dtype=torch.float32).unsqueeze(1) * rate.unsqueeze(0)
    return torch.cat((angle.sin(), angle.cos()), dim=1)


class Layer(nn.Module):
    """Self-attention, cross-attention in a decoder, and a feed-forward network or MoE. A norm precedes each of them.

    recompute: the activations that backward computes again.
    """

    def __init__(self, config: ModelConfig, index: int, *, decoder: bool) -> None:
        super().__init__()
        M, heads, key_dim, biases = config.dim, config.heads, config.key_dim, config.biases
        self.dropout = config.dropout
        self.recompute: Literal["nothing", "attention", "everything"] = "nothing"
        self.self_attention_norm = build_norm(config)
        self.self_attention = Attention(M, heads, key_dim, biases=biases)
        self.cross_attention_norm = build_norm(config) if decoder else None
        self.cross_attention = Attention(M, heads, key_dim, biases=biases) if decoder else None
        self.feed_forward_norm = build_norm(config)
        self.feed_forward: FeedForward | MoE
        self.feed_forward = (
            MoE(M, config.moe, decoder=decoder, ffn_dim=config.ffn_dim, activation=config.activation, biases=biases)
            if config.is_moe(index)
            else FeedForward(M, config.ffn_dim, config.activation, biases=biases)
        )

    def forward(
        self,
        x_BLM: Tensor,
        self_mask: Tensor,
        tokens: Tokens,
        memory_BLM: Tensor | None = None,
        cross_mask: Tensor | None = None,
    ) -> tuple[Tensor, MoEStatistics | None]:
        args = x_BLM, self_mask, tokens, memory_BLM, cross_mask
        if self.recompute == "everything":
            return recomputed(
                self._compute, *args, router=self.feed_forward if isinstance(self.feed_forward, MoE) else None
            )
        return self._compute(*args)

    def _compute(
        self, x_BLM: Tensor, self_mask: Tensor, tokens: Tokens, memory_BLM: Tensor | None, cross_mask: Tensor | None
    ) -> tuple[Tensor, MoEStatistics | None]:
        if self.recompute == "attention":
            x_BLM = recomputed(self._attend, x_BLM, self_mask, memory_BLM, cross_mask, router=None)
        else:
            x_BLM = self._attend(x_BLM, self_mask, memory_BLM, cross_mask)
        if isinstance(self.feed_forward, FeedForward):
            return self._feed_forward(x_BLM), None
        y_BLM, statistics = self.transform(self.feed_forward_norm(x_BLM), tokens)
        return self.add(x_BLM, y_BLM), statistics

    def _feed_forward(self, x_BLM: Tensor) -> Tensor:
        y_BLM: Tensor = self.feed_forward(self.feed_forward_norm(x_BLM))
        return self.add(x_BLM, y_BLM)

    def _attend(self, x_BLM: Tensor, self_mask: Tensor, memory_BLM: Tensor | None, cross_mask: Tensor | None) -> Tensor:
        y_BLM = self.self_attention_norm(x_BLM)
        x_BLM = self.add(x_BLM, self.self_attention(y_BLM, y_BLM, self_mask))
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            x_BLM = self.add(x_BLM, self.cross_attention(self.cross_attention_norm(x_BLM), memory_BLM, cross_mask))
        return x_BLM

    def compile_parts(self, **options: Any) -> None:
        """Compile the parts without routing by torch.compile: attention, and a dense feed-forward network."""
        self._attend = torch.compile(self._attend, **options)  # type: ignore[method-assign]
        self._feed_forward = torch.compile(self._feed_forward, **options)  # type: ignore[method-assign]

    def transform(self, y_BLM: Tensor, tokens: Tokens) -> tuple[Tensor, MoEStatistics | None]:
        """Return the output of the feed-forward part alone, and the statistics of a MoE layer."""
        if isinstance(self.feed_forward, FeedForward):
            return self.feed_forward(y_BLM), None
        y_GSM, statistics = self.feed_forward(y_BLM.reshape(*tokens.valid_GS.shape, -1), tokens)
        return y_GSM.view(y_BLM.shape), statistics

    def add(self, x_BLM: Tensor, y_BLM: Tensor) -> Tensor:
        """Return the residual connection, with dropout of y."""
        return add_dropped(x_BLM, y_BLM, self.dropout, self.training)


class Stack(nn.Module):
    """The layers of an encoder or decoder and their final norm."""

    def __init__(self, config: ModelConfig, *, decoder: bool) -> None:
        super().__init__()
        num_layers = config.decoder_layers if decoder else config.encoder_layers
        self.layers = nn.ModuleList(Layer(config, index, decoder=decoder) for index in range(1, num_layers + 1))
        self.norm = build_norm(config)

    def forward(
        self,
        x_BLM: Tensor,
        self_mask: Tensor,
        tokens: Tokens,
        memory_BLM: Tensor | None = None,
        cross_mask: Tensor | None = None,
    ) -> tuple[Tensor, list[MoEStatistics]]:
        statistics_of_layers = []
        for layer in self.layers:
            x_BLM, statistics = layer(x_BLM, self_mask, tokens, memory_BLM, cross_mask)
            if statistics is not None:
                statistics_of_layers.append(statistics)
        return self.norm(x_BLM), statistics_of_layers


class Transformer(nn.Module):
    """The whole model. Its target embedding is also the output projection.

    source_vocabulary, target_vocabulary: V of each side.
    shared: both sides have one embedding table.
    max_positions: longest sentence, in tokens.
    """

    positions: Tensor

    def __init__(
        self,
        config: ModelConfig,
        *,
        source_vocabulary: int,
        target_vocabulary: int,
        shared: bool,
        max_positions: int,
    ) -> None:
        super().__init__()
        if shared and source_vocabulary != target_vocabulary:
            raise ValueError(f"a shared vocabulary has one size, got {source_vocabulary} and {target_vocabulary}")
        self.config = config
        self.target_embedding_VM = nn.Parameter(torch.empty(target_vocabulary, config.dim))
        self.source_embedding_VM = (
            self.target_embedding_VM if shared else nn.Parameter(torch.empty(source_vocabulary, config.dim))
        )
        self.encoder = Stack(config, decoder=False)
        self.decoder = Stack(config, decoder=True)
        table = sinusoids(max_positions + FIRST_POSITION, config.dim)
        self.register_buffer("positions", table, persistent=False)
        self.recompute_logits = False
        # the partitioner replaces these two when it cuts the vocabulary over processes
        self.look_up: LookUp = F.embedding
        self.token_losses: TokenLosses = token_losses

    def forward(self, batch: Batch, *, label_smoothing: float) -> Losses:
        """Return the losses of a batch, summed over its real target tokens."""
        memory_BLM, encoder_statistics = self.encode(batch)
        x_BTM, decoder_statistics = self.decode(batch, memory_BLM)
        target_T = batch.decoder_target_tokens_BT.flatten()
        valid_T = (batch.decoder_segments_BT > 0).flatten()
        loss_T, nll_T = vocabulary_loss(
            x_BTM.flatten(0, 1),
            self.target_embedding_VM,
            target_T,
            label_smoothing,
            recompute=self.recompute_logits,
            losses=self.token_losses,
        )
        return Losses(
            loss=(loss_T * valid_T).sum(),
            nll_BT=(nll_T * valid_T).view_as(batch.decoder_target_tokens_BT),
            statistics=encoder_statistics + decoder_statistics,
        )

    def encode(self, batch: Batch) -> tuple[Tensor, list[MoEStatistics]]:
        """Return the encoder output [B, L, M] of packed rows, and the statistics of its MoE layers."""
        segments = batch.encoder_segments_BL
        x_BLM = self.embed(self.source_embedding_VM, batch.encoder_tokens_BL, batch.encoder_positions_BL)
        mask = segment_mask(segments, segments, causal=False, dtype=mask_dtype(x_BLM))
        tokens = Tokens.of_rows(segments, batch.pair_BL, num_groups=batch.num_groups, num_pairs=batch.num_pairs)
        memory_BLM, statistics = self.encoder(x_BLM, mask, tokens)
        return memory_BLM, statistics

    def decode(self, batch: Batch, memory_BLM: Tensor) -> tuple[Tensor, list[MoEStatistics]]:
        """Return the decoder output [B, T, M] of packed rows with known targets, and its MoE layers' statistics."""
        segments = batch.decoder_segments_BT
        x_BTM = self.embed(self.target_embedding_VM, batch.decoder_input_tokens_BT, batch.decoder_positions_BT)
        self_mask = segment_mask(segments, segments, causal=True, dtype=mask_dtype(x_BTM))
        cross_mask = segment_mask(segments, batch.encoder_segments_BL, causal=False, dtype=mask_dtype(x_BTM))
        tokens = Tokens.of_rows(segments, batch.pair_BT, num_groups=batch.num_groups, num_pairs=batch.num_pairs)
        x_BTM, statistics = self.decoder(x_BTM, self_mask, tokens, memory_BLM, cross_mask)
        return x_BTM, statistics

    def embed(self, table_VM: Tensor, tokens_BL: Tensor, positions_BL: Tensor) -> Tensor:
        """Return scaled embeddings plus positions, with dropout."""
        x_BLM = self.look_up(tokens_BL, table_VM).to(self.positions.dtype) * math.sqrt(self.config.dim)
        x_BLM = x_BLM + self.positions[positions_BL + FIRST_POSITION]
        return dropout(x_BLM, self.config.dropout, self.training)

    def reach(self, max_positions: int) -> None:
        """Extend the table of positions, so that the model takes sentences up to this length."""
        if max_positions + FIRST_POSITION > len(self.positions):
            self.positions = sinusoids(max_positions + FIRST_POSITION, self.config.dim).to(self.positions)

    def recompute(self, mode: Recompute) -> None:
        """Choose the activations that a forward pass drops and backward computes again. The result is the same.

        none: drops nothing.
        selective: drops those of attention, which are large and cheap. No routing and no all-to-all runs twice.
        layers: drops all but the input of every second layer, from the first on. If every second layer is a MoE layer,
            these are the dense ones.
        all: drops all but the input of every layer.
        With any mode but none, logits exist for one chunk of tokens at a time.
        """
        for stack in (self.encoder, self.decoder):
            for index, layer in enumerate(stack.layers):
                assert isinstance(layer, Layer)
                whole = mode == "all" or (mode == "layers" and index % 2 == 0)
                layer.recompute = "everything" if whole else "attention" if mode == "selective" else "nothing"
        self.recompute_logits = mode != "none"

    def moe_layers(self) -> dict[str, MoE]:
        """Return the MoE layers by name, in the order of `ModelConfig.moe_layers`."""
        networks = [layer.feed_forward for stack in (self.encoder, self.decoder) for layer in stack.layers]
        moe_layers = [network for network in networks if isinstance(network, MoE)]
        return dict(zip(self.config.moe_layers(), moe_layers, strict=True))
