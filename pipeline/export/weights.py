"""The parameters of a model by the names of M2M100 and NLLB-MoE in transformers.

M model, H hidden, N heads, D head dim, E experts, V vocabulary.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.model.attention import Attention
from pipeline.model.feed_forward import FeedForward
from pipeline.model.moe.layer import MoE
from pipeline.model.transformer import Layer, Transformer

Named = Iterator[tuple[str, Tensor]]


def named_weights(model: Transformer) -> dict[str, Tensor]:
    """Return contiguous float32 tensors, without those that transformers ties to the embedding.

    Projections get the biases that transformers wants, all zero. M2M100 and NLLB-MoE name the same things differently.
    """
    sparse = bool(model.moe_layers())
    hidden = hidden_size(model)
    weights = {"model.shared.weight": model.target_embedding_VM.data}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for index, layer in enumerate(stack.layers):
            assert isinstance(layer, Layer)
            named = _layer(layer, hidden, _NLLB if sparse else _M2M)
            weights |= {f"model.{side}.layers.{index}.{name}": tensor for name, tensor in named}
        weights |= {f"model.{side}.layer_norm.{name}": tensor for name, tensor in _norm(stack.norm)}
    return {name: tensor.to(torch.float32).contiguous() for name, tensor in weights.items()}


def hidden_size(model: Transformer) -> int:
    """Return the hidden size of the export: the wider one of dense networks and experts; see `_feed_forward`."""
    if not model.moe_layers():
        return model.config.ffn_dim
    return max(model.config.ffn_dim, model.config.moe.expert_dim)


_M2M = {"cross": "encoder_attn", "cross_norm": "encoder_attn_layer_norm", "norm": "final_layer_norm", "dense": ""}
_NLLB = {
    "cross": "cross_attention",
    "cross_norm": "cross_attention_layer_norm",
    "norm": "ff_layer_norm",
    "dense": "ffn.",
}


def _layer(layer: Layer, hidden: int, names: dict[str, str]) -> Named:
    yield from _prefixed("self_attn.", _attention(layer.self_attention))
    yield from _prefixed("self_attn_layer_norm.", _norm(layer.self_attention_norm))
    if layer.cross_attention is not None and layer.cross_attention_norm is not None:
        yield from _prefixed(names["cross"] + ".", _attention(layer.cross_attention))
        yield from _prefixed(names["cross_norm"] + ".", _norm(layer.cross_attention_norm))
    yield from _prefixed(names["norm"] + ".", _norm(layer.feed_forward_norm))
    network = layer.feed_forward
    if isinstance(network, FeedForward):
        yield from _prefixed(names["dense"], _feed_forward(network.wi_MH, network.wo_HM, hidden))
    else:
        yield from _prefixed("ffn.", _moe(network, hidden))


def _moe(moe: MoE, hidden: int) -> Named:
    wg_EM = moe.router.wg_EM
    assert isinstance(wg_EM, Tensor)  # gates without one are not exportable
    yield "router.classifier.weight", wg_EM.data
    for expert, (wi_MH, wo_HM) in enumerate(zip(moe.experts.wi_EMH, moe.experts.wo_EHM, strict=True)):
        yield from _prefixed(f"experts.expert_{expert}.", _feed_forward(wi_MH, wo_HM, hidden))


def _feed_forward(wi_MH: Tensor, wo_HM: Tensor, hidden: int) -> Named:
    """Name the weights of a network. A narrower one is filled up with hidden units of zeros, which change nothing."""
    missing = hidden - wi_MH.shape[1]
    yield from _linear("fc1", F.pad(wi_MH.data.T, (0, 0, 0, missing)))
    yield from _linear("fc2", F.pad(wo_HM.data.T, (0, missing)))


def _attention(attention: Attention) -> Named:
    for name, weight_MND in (("q", attention.wq_MND), ("k", attention.wk_MND), ("v", attention.wv_MND)):
        yield from _linear(f"{name}_proj", weight_MND.data.flatten(1).T)
    yield from _linear("out_proj", attention.wo_NDM.data.flatten(0, 1).T)


def _linear(name: str, weight: Tensor) -> Named:
    """weight: [out, in], as Linear's."""
    yield f"{name}.weight", weight
    yield f"{name}.bias", weight.new_zeros(len(weight))


def _norm(norm: nn.LayerNorm) -> Named:
    yield "weight", norm.weight.data
    yield "bias", norm.bias.data


def _prefixed(prefix: str, named: Named) -> Named:
    for name, tensor in named:
        yield prefix + name, tensor
