"""Recording the decisions of routers, and replaying them.

N decisions. A gate is differentiable except for its decisions: which score is the largest, whether a draw lies below a
threshold, which token comes first in a queue. A decision is an operation that takes real numbers and gives integers or
booleans. Only a statistic of a router does so too. Therefore decisions can be recorded and replayed for every gate.
"""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NO_DECISIONS = {torch.count_nonzero}  # a statistic


class Decisions(TorchFunctionMode):
    """A context that records the decisions of the operations in it, or replays `recorded_N` in the same order."""

    def __init__(self, recorded_N: Tensor | None = None) -> None:
        super().__init__()
        self._recorded: list[Tensor] = []
        self._replayed_N, self._next = recorded_N, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or result.is_floating_point() or func in NO_DECISIONS:
            return result
        if not any(isinstance(a, Tensor) and a.is_floating_point() for a in args):
            return result
        if self._replayed_N is None:
            self._recorded.append(result.flatten().to(torch.int32))
            return result
        end = self._next + result.numel()
        replayed = self._replayed_N[self._next : end].to(result.dtype).view(result.shape)
        self._next = end
        return replayed

    @property
    def recorded_N(self) -> Tensor:
        """The recorded decisions as int32, ready to be replayed."""
        return torch.cat(self._recorded)
