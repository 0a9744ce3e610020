"""The decoder, run one step at a time. Keys and values of earlier tokens are in memory of fixed size.

n sentences, K beam, B = n·K hypotheses, L source length, M model, N heads, D head dim, V vocabulary.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.decode.search.memory import MEMORIES, BeamMemory, Shape, by_hypothesis, by_sentence, keep_rows
from pipeline.model.attention import MASKED
from pipeline.model.fused_attention import attend_few, attention_weights, mask_dtype
from pipeline.model.inference import feed_forward
from pipeline.model.moe.tokens import Tokens
from pipeline.model.projection import add_bias, project, project_to_table, side_by_side
from pipeline.model.transformer import FIRST_POSITION, Layer, Transformer
from pipeline.vocab.symbols import PAD


class DecoderState:
    """The decoder's keys and values for a batch: of each source, shared by its beam, and of each hypothesis so far.

    The memory is allocated once, for the longest output (`pipeline.decode.search.memory`).
    beam: hypotheses of a sentence.
    max_length: most steps.
    memory: value of `decode.beam_memory`.
    attention: True to store the cross-attention of the last layer in `attention_BL` at each step, its mean over heads.
    pair_n: index in `MoEConfig.pairs` of each sentence's language pair; None if no gate of the model chooses by task.
    """

    attention_BL: Tensor

    def __init__(
        self,
        model: Transformer,
        source_BL: Tensor,
        *,
        beam: int,
        max_length: int,
        memory: str = "flattened",
        attention: bool = False,
        pair_n: Tensor | None = None,
    ) -> None:
        self.model, self.beam, self.attention, self.pair_n = model, beam, attention, pair_n
        self.layers = [_Layer(cast(Layer, layer)) for layer in model.decoder.layers]
        self.computing = precision_of(model)
        memory_BLM = encode(model, source_BL, pair_n)
        padding_BL = source_BL == PAD
        dtype, device = model.target_embedding_VM.dtype, source_BL.device
        self.cross_mask = torch.zeros(padding_BL.shape, dtype=dtype, device=device).masked_fill_(padding_BL, MASKED)
        with self.computing:
            self.cross = [layer.source(memory_BLM) for layer in self.layers]
        shape = Shape(
            layers=len(self.layers),
            sentences=len(source_BL),
            beam=beam,
            length=max_length,
            heads=model.config.heads,
            head_dim=model.config.key_dim,
        )
        self.past: BeamMemory = MEMORIES[memory](shape, dtype=dtype, device=device)
        self.length = 0

    def step(self, tokens_B: Tensor, live_B: Tensor | None = None) -> Tensor:
        """Append one token to every hypothesis and return the logits [B, V] of the next one, for the caller to change.

        live_B: False for an idle row, on which no expert computes. None means that all rows are live.
        """
        model = self.model
        x_BM = F.embedding(tokens_B, model.target_embedding_VM).to(model.positions.dtype) * math.sqrt(model.config.dim)
        x_BM = x_BM + model.positions[self.length + FIRST_POSITION]
        pair_B = None if self.pair_n is None else self.pair_n.repeat_interleave(self.beam)
        self.past.open()
        with self.computing:
            for index, layer in enumerate(self.layers):
                x_BM = x_BM + layer.attend(x_BM, index, self.past)
                x_BM = x_BM + self._attend_source(x_BM, index)
                x_BM = x_BM + feed_forward(layer.layer, layer.layer.feed_forward_norm(x_BM), live_B, pair_B)
            logits_BV = project_to_table(model.decoder.norm(x_BM), model.target_embedding_VM)
        self.length += 1
        return logits_BV

    def _attend_source(self, x_BM: Tensor, index: int) -> Tensor:
        layer = self.layers[index]
        keys_nNLD, values_nNLD = self.cross[index]
        query_nNKD = by_sentence(layer.query(x_BM), self.beam)
        mask_n11L = self.cross_mask[:, None, None]
        if self.attention and index == len(self.layers) - 1:
            weight_nNKL = attention_weights(query_nNKD, keys_nNLD, mask_n11L)
            self.attention_BL = weight_nNKL.mean(dim=1).flatten(0, 1)
            heads_nNKD = weight_nNKL @ values_nNLD
        else:
            heads_nNKD = attend_few(query_nNKD, keys_nNLD, values_nNLD, mask_n11L)
        return project(by_hypothesis(heads_nNKD).flatten(1), layer.cross.wo_NDM, layer.cross.bo_M)

    def reorder(self, parent_B: Tensor) -> None:
        """Let hypothesis b continue from hypothesis parent_B[b] of the same sentence."""
        self.past.reorder(parent_B)

    def keep(self, sentence_n: Tensor) -> None:
        """Drop all sentences but these."""
        self.past.keep(sentence_n)
        self.cross = [keep_rows(pair, sentence_n, pair.shape[3]) for pair in self.cross]
        self.cross_mask = self.cross_mask[sentence_n]
        self.pair_n = None if self.pair_n is None else self.pair_n[sentence_n]

    @property
    def tensors(self) -> Sequence[Tensor]:
        """All tensors that hold the past."""
        return [*self.past.tensors, *self.cross, self.cross_mask]


class _Layer:
    """A decoder layer whose projections are joined, so that one product computes queries, keys and values."""

    def __init__(self, layer: Layer) -> None:
        assert layer.cross_attention is not None
        assert layer.cross_attention_norm is not None
        self.layer, self.cross, self.cross_norm = layer, layer.cross_attention, layer.cross_attention_norm
        own, cross = layer.self_attention, self.cross
        self.project_own = side_by_side(own.wk_MND, own.wv_MND, own.wq_MND)
        self.project_source = side_by_side(cross.wk_MND, cross.wv_MND)
        self.own_X, self.source_X = joined(own.bk_X, own.bv_X, own.bq_X), joined(cross.bk_X, cross.bv_X)
        self.heads = own.heads

    def attend(self, x_BM: Tensor, index: int, past: BeamMemory) -> Tensor:
        """Return the self-attention [B, M] of the newest token."""
        own_BX = add_bias(self.project_own(self.layer.self_attention_norm(x_BM)), self.own_X)
        own_B3ND = _split(own_BX, 3, self.heads)
        heads_BND = past.attend(index, own_B3ND[:, 2], own_B3ND[:, :2].transpose(0, 1))
        own = self.layer.self_attention
        return project(heads_BND.flatten(1), own.wo_NDM, own.bo_M)

    def query(self, x_BM: Tensor) -> Tensor:
        """Return the queries [B, N, D] of cross-attention."""
        query_BX = project(self.cross_norm(x_BM), self.cross.wq_MND, self.cross.bq_X)
        return _split(query_BX, 1, self.heads).squeeze(1)

    def source(self, memory_BLM: Tensor) -> Tensor:
        """Return the keys and values [2, n, N, L, D] of the source."""
        pair_BL2ND = _split(add_bias(self.project_source(memory_BLM), self.source_X), 2, self.heads)
        return pair_BL2ND.permute(2, 0, 3, 1, 4).contiguous()


def joined(*biases_X: Tensor | None) -> Tensor | None:
    """Join the biases of projections into one vector; None without biases."""
    present = [bias for bias in biases_X if bias is not None]
    return torch.cat(present) if present else None


def _split(projected: Tensor, count: int, heads: int) -> Tensor:
    return projected.view(*projected.shape[:-1], count, heads, -1)


def encode(model: Transformer, source_BL: Tensor, pair_B: Tensor | None = None) -> Tensor:
    """Return the encoder output [B, L, M] for a padded batch with one sentence in each row. pair_B: as DecoderState."""
    valid_BL = source_BL != PAD
    positions_BL = torch.arange(source_BL.shape[1], device=source_BL.device).expand_as(source_BL)
    x_BLM = model.embed(model.source_embedding_VM, source_BL, positions_BL)
    tokens = Tokens.of_mask(valid_BL, pair_B, max(1, len(model.config.moe.pairs)))
    with precision_of(model):
        mask_BL = x_BLM.new_zeros(valid_BL.shape, dtype=mask_dtype(x_BLM)).masked_fill_(~valid_BL, MASKED)
        memory_BLM, _ = model.encoder(x_BLM, mask_BL[:, None, None, :], tokens)
    return cast(Tensor, memory_BLM)


def precision_of(model: Transformer) -> AbstractContextManager[Any]:
    """Return the context to run the model's layers in: autocast if its matrices are bfloat16, else an empty one."""
    table_VM = model.target_embedding_VM
    if table_VM.dtype == torch.bfloat16:
        return torch.autocast(table_VM.device.type, torch.bfloat16)
    return nullcontext()
