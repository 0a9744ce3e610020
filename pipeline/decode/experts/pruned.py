"""Removal of the experts that a pruning does not keep.

The router's softmax is then over the logits of the kept experts, as if the logits of the others were -inf.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pipeline.decode.experts.pruning import check_experts
from pipeline.model.transformer import Transformer


@torch.no_grad()
def cut(model: Transformer, experts: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Remove all experts of a model but these, in place.

    experts: numbers of the experts to keep, by layer.
    Returns the rows that are kept of each parameter, by its name.
    """
    layers = model.moe_layers()
    check_experts(model.config.moe, list(layers), experts)
    names = {id(module): name for name, module in model.named_modules()}
    kept_rows = {}
    for layer_name, layer in layers.items():
        rows = torch.tensor(list(experts[layer_name]))
        for module in (layer.router, layer.experts):
            for name, parameter in list(module.named_parameters()):
                setattr(module, name, nn.Parameter(parameter.index_select(0, rows.to(parameter.device))))
                kept_rows[f"{names[id(module)]}.{name}"] = rows
        layer.num_experts = len(rows)
    return kept_rows
