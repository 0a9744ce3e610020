"""The dense feed-forward network. M model, H hidden."""

import torch
from torch import Tensor, nn

from pipeline.model.projection import project


class FeedForward(nn.Module):
    """Two projections around a ReLU, relu(x · wi) · wo, for any tensor whose last dimension is M."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.wi_MH = nn.Parameter(torch.empty(dim, hidden))
        self.wo_HM = nn.Parameter(torch.empty(hidden, dim))

    def forward(self, x_BLM: Tensor) -> Tensor:
        return project(project(x_BLM, self.wi_MH).relu_(), self.wo_HM)
