"""One decoding step at a time, with key and value caches of fixed size.

n sentences, K beam, B = n·K hypotheses, L source length, T room for target tokens, M model, N heads, D head dim, V
vocabulary.
"""

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.attention import MASKED, Attention
from pipeline.model.tokens import Tokens
from pipeline.model.transformer import FIRST_POSITION, Layer, Transformer
from pipeline.vocab.symbols import PAD


class DecoderState:
    """Everything the decoder needs of the past: cross-attention keys of each sentence (shared by its beam), and
    self-attention keys of each hypothesis, allocated once for the longest output."""

    def __init__(
        self, model: Transformer, source_BL: Tensor, *, beam: int, max_length: int, attention: bool = False
    ) -> None:
        self.model, self.beam = model, beam
        self.layers = [cast(Layer, layer) for layer in model.decoder.layers]
        memory_BLM = encode(model, source_BL)
        padding_BL = source_BL == PAD
        self.cross_mask = memory_BLM.new_zeros(padding_BL.shape).masked_fill_(padding_BL, MASKED)[:, None, None, :]
        self.cross = [_cross(layer).keys_values(memory_BLM) for layer in self.layers]
        shape = (len(source_BL) * beam, model.config.heads, max_length, model.config.key_dim)
        self.past = [(memory_BLM.new_empty(shape), memory_BLM.new_empty(shape)) for _ in self.layers]
        self.length = 0
        self.attention = attention

    def step(self, tokens_B: Tensor, live_B: Tensor | None = None) -> Tensor:
        """Logits [B, V] of the token after `tokens_B`, which every hypothesis gets appended; the caller may change
        them. live_B: False for a row that no expert needs to see."""
        model, t = self.model, self.length
        x_BM = F.embedding(tokens_B, model.target_embedding_VM) * math.sqrt(model.config.dim)
        x_BM = x_BM + model.positions[t + FIRST_POSITION].to(x_BM.dtype)
        live_B = torch.ones_like(tokens_B, dtype=torch.bool) if live_B is None else live_B
        routed = Tokens.of_mask(live_B.unsqueeze(1))
        for layer, (keys, values), (cross_keys, cross_values) in zip(self.layers, self.past, self.cross, strict=True):
            y_B1M = layer.self_attention_norm(x_BM).unsqueeze(1)
            new_keys, new_values = layer.self_attention.keys_values(y_B1M)
            keys[:, :, t : t + 1], values[:, :, t : t + 1] = new_keys, new_values
            seen = layer.self_attention.attend(y_B1M, keys[:, :, : t + 1], values[:, :, : t + 1], None)
            x_BM = x_BM + seen.squeeze(1)
            assert layer.cross_attention_norm is not None
            y_nKM = layer.cross_attention_norm(x_BM).unflatten(0, (-1, self.beam))
            x_BM = x_BM + _cross(layer).attend(y_nKM, cross_keys, cross_values, self.cross_mask).flatten(0, 1)
            if self.attention and layer is self.layers[-1]:
                self.attention_BL = self._attention(_cross(layer), y_nKM, cross_keys)
            y_BM, _ = layer.transform(layer.feed_forward_norm(x_BM), routed)
            x_BM = x_BM + y_BM
        self.length += 1
        logits_BV: Tensor = model.decoder.norm(x_BM) @ model.target_embedding_VM.T
        return logits_BV

    def _attention(self, cross: Attention, y_nKM: Tensor, keys: Tensor) -> Tensor:
        """Cross-attention probabilities, mean over heads."""
        query_nKND = (y_nKM @ cross.wq_MND.flatten(1)).view(*y_nKM.shape[:2], *cross.wq_MND.shape[1:])
        logits_nNKL = query_nKND.transpose(1, 2) @ keys.transpose(2, 3) / math.sqrt(keys.shape[3]) + self.cross_mask
        attention_BL: Tensor = logits_nNKL.softmax(dim=-1).mean(dim=1).flatten(0, 1)
        return attention_BL

    def reorder(self, parent_B: Tensor) -> None:
        """Hypothesis b continues what hypothesis parent_B[b] was."""
        t = self.length
        for keys, values in self.past:
            keys[:, :, :t] = keys[parent_B, :, :t]
            values[:, :, :t] = values[parent_B, :, :t]

    def keep(self, sentence_n: Tensor) -> None:
        """Go on with these sentences alone."""
        row_B = (sentence_n.unsqueeze(1) * self.beam + torch.arange(self.beam, device=sentence_n.device)).flatten()
        self.past = [(keys[row_B], values[row_B]) for keys, values in self.past]
        self.cross = [(keys[sentence_n], values[sentence_n]) for keys, values in self.cross]
        self.cross_mask = self.cross_mask[sentence_n]


def encode(model: Transformer, source_BL: Tensor) -> Tensor:
    """Encoder output [B, L, M] of one sentence a row, padded."""
    valid_BL = source_BL != PAD
    positions_BL = torch.arange(source_BL.shape[1], device=source_BL.device).expand_as(source_BL)
    x_BLM = model.embed(model.source_embedding_VM, source_BL, positions_BL)
    mask = x_BLM.new_zeros(valid_BL.shape).masked_fill_(~valid_BL, MASKED)[:, None, None, :]
    memory_BLM, _ = model.encoder(x_BLM, mask, Tokens.of_mask(valid_BL))
    return cast(Tensor, memory_BLM)


def _cross(layer: Layer) -> Attention:
    assert layer.cross_attention is not None
    return layer.cross_attention
