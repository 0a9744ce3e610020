"""Proof, at the first step of every run, that auxiliary losses reach the routers: elsewhere they have gone missing from
the gradient without a word."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from pipeline.model.moe import MoE, MoEStatistics

SHARED_GATE = "budget"  # the one loss that is about the gate to the shared network, not about the router


class RouterGradientCheck:
    """Looks at the gradient of each layer's weighted auxiliary loss in the parameters that it is for."""

    def __init__(self, layers: dict[str, MoE], device: torch.device) -> None:
        self._names: list[str] = []
        self._targets: list[list[list[nn.Parameter]]] = []
        for name, layer in layers.items():
            self._names.append(name)
            self._targets.append(_targets(layer))
        self._num = sum(len(targets) for targets in self._targets)
        self._reached = torch.zeros(self._num, device=device)
        self._done = not self._num

    def look(self, statistics: Sequence[MoEStatistics]) -> None:
        """At one micro-batch of the first step, before its backward pass."""
        if self._done:
            return
        index = 0
        for targets, s in zip(self._targets, statistics, strict=True):
            for parameters in targets:
                if s.loss.requires_grad:
                    grads = torch.autograd.grad(s.loss, parameters, retain_graph=True, allow_unused=True)
                    found = [grad.abs().max() for grad in grads if grad is not None]
                    if found:
                        self._reached[index] = torch.maximum(self._reached[index], torch.stack(found).max())
                index += 1

    def decide(self) -> None:
        """After the first step's micro-batches: raise ValueError on every process where a gradient is missing."""
        if self._done:
            return
        self._done = True
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
    """Sets of parameters each of which some auxiliary loss must move."""
    targets = []
    if any(name != SHARED_GATE for name in layer.loss_weights):
        targets.append(list(layer.router.parameters()))
    if SHARED_GATE in layer.loss_weights and layer.conditional is not None:
        targets.append([layer.conditional.wc_M])
    return targets
