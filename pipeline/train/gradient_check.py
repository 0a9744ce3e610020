"""Check in the first step of every run that auxiliary losses reach the routers.

Other implementations have lost them from the gradient without an error.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from pipeline.model.moe.layer import MoE, MoEStatistics

SHARED_GATE = "budget"  # the only loss of the gate to the shared network; all others are of the router


class RouterGradientCheck:
    """Checks that each layer's weighted auxiliary loss gives a gradient to the parameters that it must move."""

    def __init__(self, layers: dict[str, MoE], device: torch.device) -> None:
        self._names: list[str] = []
        self._targets: list[list[list[nn.Parameter]]] = []
        for name, layer in layers.items():
            self._names.append(name)
            self._targets.append(_targets(layer))
        self._num = sum(len(targets) for targets in self._targets)
        self._reached = torch.zeros(self._num, device=device)
        self._finished = not self._num

    def look(self, statistics: Sequence[MoEStatistics]) -> None:
        """Note the gradients of one micro-batch of the first step, before its backward pass."""
        if self._finished:
            return
        index = 0
        for targets, s in zip(self._targets, statistics, strict=True):
            for parameters in targets:
                if s.loss.requires_grad:
                    grads = torch.autograd.grad(s.loss, parameters, retain_graph=True, allow_unused=True)
                    largest = [grad.abs().max() for grad in grads if grad is not None]
                    if largest:
                        self._reached[index] = torch.maximum(self._reached[index], torch.stack(largest).max())
                index += 1

    def decide(self) -> None:
        """Raise ValueError on every process if a gradient is missing after the first step. A collective."""
        if self._finished:
            return
        self._finished = True
        dist.all_reduce(self._reached, op=dist.ReduceOp.MAX)
        reached = iter(self._reached.tolist())
        missing = [
            name
            for name, targets in zip(self._names, self._targets, strict=True)
            if not all(next(reached) for _ in targets)
        ]
        if missing:
            raise ValueError(
                f"the auxiliary loss of layer {', '.join(missing)} gives its router no gradient: set its weight to 0 "
                "to train without it, or repair the gate"
            )


def _targets(layer: MoE) -> list[list[nn.Parameter]]:
    """Return sets of parameters. An auxiliary loss must move each set. Without training of routers there is none."""
    targets: list[list[nn.Parameter]] = []
    if not any(parameter.requires_grad for parameter in layer.router.parameters()):
        return targets
    if any(name != SHARED_GATE for name in layer.loss_weights):
        targets.append([p for p in layer.router.parameters() if p.requires_grad])
    if SHARED_GATE in layer.loss_weights and layer.conditional is not None:
        targets.append([layer.conditional.wc_M])
    return targets
