"""The parameters of a model by the names of M2M100 and NLLB-MoE in transformers.

M model, H hidden, E experts.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.export.exportable import has_experts
from pipeline.export.names import their_name, to_theirs
from pipeline.model.config import ModelConfig
from pipeline.model.transformer import Transformer


def named_weights(model: Transformer) -> dict[str, Tensor]:
    """Return contiguous float32 tensors, without those that transformers ties to the embedding.

    A model without biases gets biases of zero, which transformers wants. A network that is narrower than `hidden_size`
    is filled up with hidden units of zeros, which change nothing.
    """
    sparse, hidden = bool(model.moe_layers()), hidden_size(model.config)
    weights: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if ".router." in name and not name.endswith(".wg_EM"):
            continue  # it adds noise in training alone
        their_key = their_name(name, sparse=sparse)
        parts = enumerate(parameter.data) if ".experts." in name else [(0, parameter.data)]
        for expert, part in parts:
            key, tensor = their_key.format(expert=expert), to_theirs(name, part)
            weights[key] = _filled(key, tensor, hidden)
            if not model.config.biases and key.endswith(("_proj.weight", "fc1.weight", "fc2.weight")):
                weights[f"{key.removesuffix('weight')}bias"] = tensor.new_zeros(len(weights[key]))
    return {name: tensor.to(torch.float32).contiguous() for name, tensor in weights.items()}


def hidden_size(config: ModelConfig) -> int:
    """Return the hidden size of the export: the wider one of dense networks and experts."""
    return max(config.ffn_dim, config.moe.expert_dim) if has_experts(config) else config.ffn_dim


def _filled(name: str, tensor: Tensor, hidden: int) -> Tensor:
    if name.endswith("fc2.weight"):
        return F.pad(tensor, (0, hidden - tensor.shape[1]))
    if ".fc1." in name:
        return F.pad(tensor, (0, 0) * (tensor.dim() - 1) + (0, hidden - len(tensor)))
    return tensor
