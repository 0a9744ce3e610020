"""Cutting out of a model the experts that its pairs hardly use.

The router's softmax is then over the logits of the experts that are kept, which is what it would be if those of the
others were -inf.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pipeline.decode.pruning import check_experts
from pipeline.model.transformer import Transformer


@torch.no_grad()
def cut(model: Transformer, experts: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Leave a model, on any device, with the experts that are kept, by layer. The rows of its whole parameters that are
    left, by name of parameter."""
    layers = model.moe_layers()
    check_experts(model.config.moe, list(layers), experts)
    names = {id(module): name for name, module in model.named_modules()}
    kept = {}
    for layer_name, layer in layers.items():
        rows = torch.tensor(list(experts[layer_name]))
        for module in (layer.router, layer.experts):
            for name, parameter in list(module.named_parameters()):
                setattr(module, name, nn.Parameter(parameter.index_select(0, rows.to(parameter.device))))
                kept[f"{names[id(module)]}.{name}"] = rows
        layer.num_experts = len(rows)
    return kept
