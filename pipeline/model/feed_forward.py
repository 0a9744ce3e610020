"""The dense feed-forward network. M model, H hidden."""

import torch
from torch import Tensor, nn

from pipeline.model.activations import activate
from pipeline.model.adapters import adapted
from pipeline.model.config import Activation
from pipeline.model.projection import add_bias, project, project_jointly


class FeedForward(nn.Module):
    """Projections around an activation, for any tensor whose last dimension is M.

    relu: relu(x · wi) · wo. With biases it is relu(x · wi + bi) · wo + bo.
    swiglu: (silu(x · wi) ⊙ (x · wu)) · wo, without biases.
    """

    zero_initialized = frozenset({"bi_H", "bo_M"})

    def __init__(self, dim: int, hidden: int, activation: Activation = "relu", *, biases: bool = False) -> None:
        super().__init__()
        self.wi_MH = nn.Parameter(torch.empty(dim, hidden))
        self.wu_MH = nn.Parameter(torch.empty(dim, hidden)) if activation == "swiglu" else None
        self.wo_HM = nn.Parameter(torch.empty(hidden, dim))
        self.bi_H = nn.Parameter(torch.empty(hidden)) if biases else None
        self.bo_M = nn.Parameter(torch.empty(dim)) if biases else None
        self.adapters = nn.ModuleDict()

    def forward(self, x_BLM: Tensor) -> Tensor:
        weights = (self.wi_MH,) if self.wu_MH is None else (self.wi_MH, self.wu_MH)
        projections = [add_bias(y, self.bi_H) for y in project_jointly(x_BLM, *weights)]
        names = ("wi_MH", "wu_MH")[: len(weights)]
        adapted_BLH = [adapted(y, x_BLM, self.adapters, name) for y, name in zip(projections, names, strict=True)]
        hidden_BLH = activate(*adapted_BLH)
        return adapted(project(hidden_BLH, self.wo_HM, self.bo_M), hidden_BLH, self.adapters, "wo_HM")
