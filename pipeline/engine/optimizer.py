"""The optimizer of a model that is cut for the mesh, with the parameter groups that ZeRO needs."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.engine.adafactor import Adafactor, Matrices
from pipeline.engine.optimizer_kinds import OPTIMIZERS, OptimizerGroup
from pipeline.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The choice of the optimizer.

    kind: name in `OPTIMIZERS`. adafactor ignores betas and epsilon.
    rate_factors: factors on the learning rate of components of the model (`pipeline.model.components`).
    """

    kind: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    rate_factors: Mapping[str, float] = field(default_factory=dict)


def build_optimizer(
    model: Transformer, experts: set[str], settings: OptimizerSettings, *, expert_group: str
) -> torch.optim.Optimizer:
    """Build an optimizer of the parameters that train.

    It has groups for matrices and for vectors, which do not decay, of the dense parts and of experts, one for each
    factor on the rate. The learning rate starts at 0. `set_learning_rate` multiplies it by each group's `factor`.

    experts: names of the experts' parameters.
    expert_group: DeepSpeed's name for their process groups.
    """
    members: dict[OptimizerGroup, list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if name in experts:
            parameter.allreduce = False  # type: ignore[attr-defined]
            parameter.group_name = expert_group  # type: ignore[attr-defined]
        group = OptimizerGroup.of(name, parameter.dim(), settings.rate_factors, is_expert=name in experts)
        members[group].append(parameter)
    groups = [
        {
            "params": members[group],
            "name": expert_group if group.expert else "vectors" if group.vector else "dense",
            "factor": group.factor,
            **({"weight_decay": 0.0} if group.vector else {}),
            **({"moe": True} if group.expert else {}),
        }
        for group in sorted(members)
    ]
    return optimizer_of(groups, settings)


def optimizer_of(groups: list[dict[str, Any]], settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return an optimizer of these groups, whose rate is 0 at first. Raises ValueError for an unknown kind."""
    decay = settings.weight_decay
    if settings.kind == "adamw":
        return torch.optim.AdamW(
            groups, lr=0.0, betas=settings.betas, eps=settings.epsilon, weight_decay=decay, fused=True
        )
    if settings.kind == "adafactor":
        return Adafactor(groups, lr=0.0, weight_decay=decay)
    raise ValueError(f"optimizer={settings.kind!r} is not one of {', '.join(OPTIMIZERS)}")


def set_learning_rate(groups: list[dict[str, Any]], learning_rate: float) -> None:
    """Set the rate of each group to `learning_rate` times its factor."""
    for group in groups:
        group["lr"] = learning_rate * group["factor"]


def matrices_of(name: str, parameter: Tensor, experts: set[str]) -> Matrices:
    """Return the matrices that Adafactor sees in a parameter: one for each expert, and one for any other weight.

    The letters at the end of the name decide whether M, or R of an adapter, is the rows or the columns.
    """
    shape = parameter.shape
    if name in experts or parameter.dim() < 3:
        return Matrices.of(shape)
    if name.rpartition("_")[2].startswith(("M", "R")):
        return Matrices(1, shape[0], shape[1:].numel())
    return Matrices(1, shape[:-1].numel(), shape[-1])
