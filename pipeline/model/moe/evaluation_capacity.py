"""A capacity of experts in evaluation. By default evaluation has none, and drops nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from pipeline.model.moe.drops import DropCount
from pipeline.model.moe.layer import MoE


@contextmanager
def evaluation_capacity(model: nn.Module, factor: float, drops: DropCount) -> Iterator[None]:
    """Limit experts to ceil(factor · k · S / E) of the S real tokens of a pass, as long as the context lasts.

    factor: capacity in fair shares; 0 is no capacity.
    drops: counts the choices that experts drop.
    Raises ValueError if a gate of the model cannot have a capacity.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, MoE)] if factor else []
    try:
        for layer in layers:
            layer.limit_evaluation(factor, drops)
        yield
    finally:
        for layer in layers:
            layer.limit_evaluation(0.0, None)
