"""What routers decided: noted, and given back.

T tokens, E experts, N numbers. A gate is differentiable but for its decisions: which score is the largest, whether a
draw lies below a threshold, who comes first in a queue. They are the only results of a router's operations on real
numbers that are not real numbers themselves, so whatever the gate, they can be noted, and replaced by noted ones.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pipeline.model.gating import Gating
from pipeline.model.routers import Routing
from pipeline.model.selection import Selection
from pipeline.model.transformer import Transformer


class Decisions(TorchFunctionMode):
    """Notes the decisions of the operations under it, or gives noted ones back in their order."""

    def __init__(self, given_N: Tensor | None = None) -> None:
        super().__init__()
        self._noted: list[Tensor] = []
        self._given_N, self._next = given_N, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or result.is_floating_point():
            return result
        if not any(isinstance(a, Tensor) and a.is_floating_point() for a in args):
            return result
        if self._given_N is None:
            self._noted.append(result.flatten().to(torch.int32))
            return result
        end = self._next + result.numel()
        given = self._given_N[self._next : end].to(result.dtype).view(result.shape)
        self._next = end
        return given

    @property
    def noted_N(self) -> Tensor:
        return torch.cat(self._noted)


class Witness:
    """Stands at the routers of a model, for one group after the other."""

    def __init__(self, model: Transformer) -> None:
        self._decisions = Decisions()
        self._served: list[Tensor] = []
        for layer in model.moe_layers().values():
            layer.router.forward = partial(self._watch, layer.router.forward)  # type: ignore[method-assign]

    def begin(self, given_N: Tensor | None = None) -> None:
        """A new group, which decides by itself or as given."""
        self._decisions, self._served = Decisions(given_N), []

    @property
    def noted_N(self) -> Tensor:
        """What the group's routers decided by themselves: int32, in a form for `begin`."""
        return self._decisions.noted_N

    @property
    def served_TE(self) -> Tensor:
        """Which experts served each token of the group, all layers one after the other; capacity has been counted."""
        return torch.cat(self._served)

    def _watch(self, forward: Callable[..., Routing], *args: Any) -> Routing:
        with self._decisions:
            routing = forward(*args)
        self._served.append(served(routing.decision))
        return routing


def served(decision: Gating | Selection) -> Tensor:
    """bool [T, E]: whether the expert serves the token."""
    mask_TE = torch.zeros(decision.valid_GS.numel(), decision.num_experts, dtype=torch.bool)
    if isinstance(decision, Selection):
        filled_X = decision.filled_X
        mask_TE[decision.token_X[filled_X], decision.expert_X[filled_X]] = True
    else:
        kept_TK, expert_TK = decision.kept_GSK.flatten(0, 1), decision.expert_GSK.flatten(0, 1)
        mask_TE[kept_TK.nonzero()[:, 0], expert_TK[kept_TK]] = True
    return mask_TE
