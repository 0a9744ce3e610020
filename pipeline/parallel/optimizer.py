"""The optimizer of a model that is cut for the mesh, in the groups that ZeRO wants."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.model.transformer import Transformer
from pipeline.parallel.adafactor import Adafactor, Matrices


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """kind: adamw or adafactor, which takes neither betas nor epsilon. expert_rate: factor on the experts' learning
    rate."""

    kind: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    expert_rate: float = 1.0


def build_optimizer(
    model: Transformer, experts: set[str], settings: OptimizerSettings, *, expert_group: str
) -> torch.optim.Optimizer:
    """Groups: dense (decayed), vectors (not decayed), and experts. experts: names of their parameters. expert_group:
    their tag.

    Each group's `factor` is for `set_learning_rate`; the rate starts at 0.
    """
    dense: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    expert: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if name in experts:
            parameter.allreduce = False  # type: ignore[attr-defined]
            parameter.group_name = expert_group  # type: ignore[attr-defined]
            expert.append(parameter)
        else:
            (dense if parameter.dim() > 1 else vectors).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": dense, "name": "dense", "factor": 1.0},
        {"params": vectors, "name": "vectors", "factor": 1.0, "weight_decay": 0.0},
    ]
    if expert:
        groups.append({"params": expert, "name": expert_group, "factor": settings.expert_rate, "moe": True})
    if settings.kind == "adafactor":
        return Adafactor(groups, lr=0.0, weight_decay=settings.weight_decay)
    return torch.optim.AdamW(
        groups, lr=0.0, betas=settings.betas, eps=settings.epsilon, weight_decay=settings.weight_decay, fused=True
    )


def set_learning_rate(groups: list[dict[str, Any]], learning_rate: float) -> None:
    for group in groups:
        group["lr"] = learning_rate * group["factor"]


def matrices_of(name: str, parameter: Tensor, experts: set[str]) -> Matrices:
    """How Adafactor reads a parameter: each expert is a matrix, and every other weight one matrix, from M to all other
    dimensions or from them to M; the letters at the end of its name say which."""
    shape = parameter.shape
    if name in experts or parameter.dim() < 3:
        return Matrices.of(shape)
    if name.rpartition("_")[2].startswith("M"):
        return Matrices(1, shape[0], shape[1:].numel())
    return Matrices(1, shape[:-1].numel(), shape[-1])
