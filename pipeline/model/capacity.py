"""A capacity of experts in evaluation, for those who ask for one: by default evaluation drops nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from pipeline.model.gating import Gating
from pipeline.model.moe import MoE
from pipeline.model.selection import Selection


class DropCount:
    """Choices of experts before and after capacity, summed over all MoE layers and passes; 0 where none was asked
    for."""

    def __init__(self) -> None:
        self._asked: torch.Tensor | int = 0
        self._kept: torch.Tensor | int = 0

    def add(self, decision: Gating | Selection) -> None:
        self._asked, self._kept = self._asked + decision.asked, self._kept + decision.kept

    @property
    def asked(self) -> int:
        return int(self._asked)

    @property
    def kept(self) -> int:
        return int(self._kept)

    def __str__(self) -> str:
        share = (self.asked - self.kept) / max(self.asked, 1)
        return f"{100 * share:.1f} % of {self.asked} choices of experts dropped"


@contextmanager
def evaluation_capacity(model: nn.Module, factor: float, drops: DropCount) -> Iterator[None]:
    """Experts take at most ceil(factor · k · S / E) of the S real tokens of a pass while this lasts, and what they drop
    is counted. factor 0 is no capacity.

    Raises ValueError where a gate of the model's has no capacity.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, MoE)] if factor else []
    try:
        for layer in layers:
            layer.limit_evaluation(factor, drops)
        yield
    finally:
        for layer in layers:
            layer.limit_evaluation(0.0, None)
