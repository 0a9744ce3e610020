"""The result of a router, and the capacity of the experts that their tokens queue for."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pipeline.model.moe.gates.capacity import capacity_of
from pipeline.model.moe.gates.expert_choice import Selection
from pipeline.model.moe.gates.token_choice import Gating
from pipeline.model.moe.router_loss import Observed
from pipeline.model.moe.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Routing:
    """A gate's decision, and statistics of the router logits without noise."""

    decision: Gating | Selection
    observed: Observed


@runtime_checkable
class Queueing(Protocol):
    """A router whose tokens queue for experts. evaluation_factor: capacity in evaluation in fair shares; 0 is none."""

    training: bool
    evaluation_factor: float


def slots(router: Queueing, factor: float, k: float, tokens: Tokens, num_experts: int) -> int | None:
    """Return C of this pass, or None for no capacity.

    In training C follows from `factor` and the size of a group. In evaluation it follows from `evaluation_factor` and
    the real tokens of the fullest group, so that it does not depend on padding.
    """
    if router.training:
        return capacity_of(factor, k, tokens.valid_GS.shape[1], num_experts) if factor > 0 else None
    if router.evaluation_factor == 0:
        return None
    return capacity_of(router.evaluation_factor, k, int(tokens.valid_GS.sum(dim=1).max()), num_experts)
