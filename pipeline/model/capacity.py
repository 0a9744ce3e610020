"""A capacity of experts in evaluation, for those who ask for one: by default evaluation drops nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from pipeline.model.drops import DropCount
from pipeline.model.moe import MoE


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
