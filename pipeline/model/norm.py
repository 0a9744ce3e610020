"""The norms before each part of a layer and after the last layer."""

from torch import nn

from pipeline.model.config import ModelConfig

Norm = nn.LayerNorm | nn.RMSNorm

EPSILON = 1e-5  # added to the variance or to the mean of squares


def build_norm(config: ModelConfig) -> Norm:
    """Return a norm of the last dimension, M."""
    if config.norm == "rms":
        return nn.RMSNorm(config.dim, eps=EPSILON)
    return nn.LayerNorm(config.dim, eps=EPSILON)
