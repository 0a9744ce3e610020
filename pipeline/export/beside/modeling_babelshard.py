"""NLLB-MoE with all of its experts.

transformers 5 takes a one-hot vector of the first expert of each token for two indices of experts, and so runs experts
0 and 1 alone. Here a MoE layer computes what transformers 4 does: each token goes through its two best experts,
weighted by softmax over the two, with no capacity.
"""

import torch
from torch import nn
from transformers import NllbMoeConfig, NllbMoeForConditionalGeneration
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeSparseMLP


class AllExperts(nn.Module):
    """A MoE layer on the parameters, and under the names, of the one it replaces. scale: factor on its output."""

    def __init__(self, layer: NllbMoeSparseMLP, scale: float) -> None:
        super().__init__()
        self.router = layer.router
        self.experts = layer.experts
        self.scale = scale

    def forward(self, hidden_states: torch.Tensor, padding_mask: torch.Tensor | None = None) -> torch.Tensor:
        """[B, L, M] -> [B, L, M]; padding is computed as well, and nothing attends to it."""
        x = hidden_states.flatten(0, 1)
        logits = nn.functional.linear(x.float(), self.router.classifier.weight.float())
        best, chosen = logits.softmax(dim=-1).topk(2, dim=-1)
        weights = (best / best.sum(dim=-1, keepdim=True)).to(x.dtype)
        y = torch.zeros_like(x)
        for index in sorted(set(chosen.flatten().tolist())):
            rows, place = (chosen == index).nonzero(as_tuple=True)
            y.index_add_(0, rows, self.experts[f"expert_{index}"](x[rows]) * weights[rows, place].unsqueeze(1))
        return self.scale * y.view_as(hidden_states)


class BabelshardForConditionalGeneration(NllbMoeForConditionalGeneration):  # type: ignore[misc]
    """The stock model where its MoE layers are right, as in transformers 4, whose layers return their routing too."""

    def __init__(self, config: NllbMoeConfig) -> None:
        super().__init__(config)
        for layer in [*self.model.encoder.layers, *self.model.decoder.layers]:
            if isinstance(layer.ffn, NllbMoeSparseMLP) and type(layer.ffn.experts) is not nn.ModuleDict:
                layer.ffn = AllExperts(layer.ffn, 1 - config.moe_token_dropout)
