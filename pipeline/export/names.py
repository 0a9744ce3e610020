"""The name and form that M2M100 and NLLB-MoE of transformers give to each parameter of ours.

M model, H hidden, N heads, D head dim, V vocabulary.
"""

import re

from torch import Tensor

SHARED = "model.shared.weight"  # the embedding of both sides, and the output projection
TIED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
_PATH = re.compile(r"((?:encoder|decoder)(?:\.layers\.\d+)?)\.(.+)\.(\w+)")  # stack and layer, module, parameter
_LINEAR = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "i": "fc1"}
_NORMS = {"self_attention_norm": "self_attn_layer_norm", "norm": "layer_norm"}
_DENSE = {
    "self_attention": "self_attn.",
    "cross_attention": "encoder_attn.",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward_norm": "final_layer_norm",
    "feed_forward": "",
}
_SPARSE = {
    "self_attention": "self_attn.",
    "cross_attention": "cross_attention.",
    "cross_attention_norm": "cross_attention_layer_norm",
    "feed_forward_norm": "ff_layer_norm",
    "feed_forward": "ffn.",
    "feed_forward.experts": "ffn.experts.expert_{expert}.",
}


def their_name(name: str, *, sparse: bool) -> str:
    """Return the name in transformers; `{expert}` in it stands for the number of an expert.

    name: of a parameter of a model with a shared vocabulary.
    sparse: the model has MoE layers, which is NLLB-MoE and not M2M100.
    """
    if name == "target_embedding_VM":
        return SHARED
    if name.endswith(".router.wg_EM"):
        return f"model.{name.removesuffix('feed_forward.router.wg_EM')}ffn.router.classifier.weight"
    match = _PATH.fullmatch(name)
    assert match is not None, name
    place, part, leaf = match.groups()
    prefix = f"model.{place}."
    parts = _SPARSE if sparse else _DENSE
    if leaf in ("weight", "bias"):  # of a norm
        return f"{prefix}{_NORMS.get(part) or parts[part]}.{leaf}"
    linear = _LINEAR.get(leaf[1]) or ("out_proj" if part.endswith("attention") else "fc2")
    return f"{prefix}{parts[part]}{linear}.{'weight' if leaf[0] == 'w' else 'bias'}"


def to_theirs(name: str, tensor: Tensor) -> Tensor:
    """Return a parameter, or that of one expert, in the shape of transformers: [out, in] for a projection.

    name: of the parameter.
    """
    letters = _projection(name)
    if not letters:
        return tensor.flatten() if name.rpartition(".")[2].startswith("b") else tensor
    return (tensor.flatten(0, -2) if letters.endswith("M") else tensor.flatten(1)).T


def from_theirs(name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the reverse of `to_theirs`. shape: of our parameter, or of its part of one expert."""
    return (tensor.T if _projection(name) else tensor).reshape(shape)


def _projection(name: str) -> str:
    """Return the letters of a projection's weight; empty for another parameter."""
    leaf = name.rpartition(".")[2]
    return leaf.partition("_")[2] if leaf[:3] in ("wq_", "wk_", "wv_", "wi_", "wo_") else ""
