"""Record the decisions of a model's routers, so that another run can repeat them. T tokens, E experts, N numbers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pipeline.model.decisions import Decisions
from pipeline.model.moe.gates.expert_choice import Selection
from pipeline.model.moe.gates.token_choice import Gating
from pipeline.model.moe.routing import Routing
from pipeline.model.transformer import Transformer


class Witness:
    """Records the decisions of a model's routers, or replaces them, for one group at a time."""

    def __init__(self, model: Transformer) -> None:
        self._decisions = Decisions()
        self._served: list[Tensor] = []
        for layer in model.moe_layers().values():
            layer.router.forward = partial(self._watch, layer.router.forward)  # type: ignore[method-assign]

    def begin(self, decisions_N: Tensor | None = None) -> None:
        """Begin a new group. Its routers take these decisions; with None they decide by themselves."""
        self._decisions, self._served = Decisions(decisions_N), []

    @property
    def recorded_N(self) -> Tensor:
        """The decisions that the group's routers made by themselves, as int32 for `begin`."""
        return self._decisions.recorded_N

    @property
    def served_TE(self) -> Tensor:
        """The experts that served each token of the group, within capacity, for all layers in a row."""
        return torch.cat(self._served)

    def _watch(self, forward: Callable[..., Routing], *args: Any) -> Routing:
        with self._decisions:
            routing = forward(*args)
        self._served.append(served(routing.decision))
        return routing


def served(decision: Gating | Selection) -> Tensor:
    """Return a mask [T, E] that is true if the expert serves the token."""
    mask_TE = torch.zeros(
        decision.valid_GS.numel(), decision.num_experts, dtype=torch.bool, device=decision.valid_GS.device
    )
    if isinstance(decision, Selection):
        filled_X = decision.filled_X
        mask_TE[decision.token_X[filled_X], decision.expert_X[filled_X]] = True
    else:
        kept_TK, expert_TK = decision.kept_GSK.flatten(0, 1), decision.expert_GSK.flatten(0, 1)
        mask_TE[kept_TK.nonzero()[:, 0], expert_TK[kept_TK]] = True
    return mask_TE
