"""Freeze the parameters of a model that do not train."""

from pipeline.model.components import is_trainable
from pipeline.model.transformer import Transformer
from pipeline.train.config import TrainConfig


def freeze(model: Transformer, config: TrainConfig) -> None:
    """Let only the parameters that train require a gradient. A bias that balances experts never does."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and is_trainable(name, config.components))
