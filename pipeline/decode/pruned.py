"""Cutting out of a model the experts that its pairs hardly use.

The router's softmax is then over the logits of the experts that are kept, which is what it would be if those of the
others were -inf.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from pipeline.decode.pruning import check_experts
from pipeline.model.moe import MoE
from pipeline.model.transformer import Transformer


def cut(model: Transformer, experts: Mapping[str, Sequence[int]]) -> None:
    """Leave a model with the experts that are kept. Its memory of the others is given back layer by layer."""
    layers = model.moe_layers()
    check_experts(model.config.moe, list(layers), experts)
    for name, layer in layers.items():
        _cut_layer(layer, torch.tensor(list(experts[name]), device=layer.experts.wi_EMH.device))


@torch.no_grad()
def _cut_layer(layer: MoE, kept: torch.Tensor) -> None:
    for module in (layer.router, layer.experts):
        for name, parameter in list(module.named_parameters()):
            setattr(module, name, nn.Parameter(parameter.index_select(0, kept)))
    layer.num_experts = len(kept)
