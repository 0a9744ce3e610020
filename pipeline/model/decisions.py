"""What routers decide: noted, and given back.

N numbers. A gate is differentiable but for its decisions: which score is the largest, whether a draw lies below a
threshold, who comes first in a queue. They are the only results of a router's operations on real numbers that are not
real numbers themselves, so whatever the gate, they can be noted, and replaced by noted ones.
"""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

OBSERVING = {torch.Tensor.isfinite}  # decides nothing, and is as large as the logits


class Decisions(TorchFunctionMode):
    """Notes the decisions of the operations under it, or gives noted ones back in their order."""

    def __init__(self, given_N: Tensor | None = None) -> None:
        super().__init__()
        self._noted: list[Tensor] = []
        self._given_N, self._next = given_N, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or result.is_floating_point() or func in OBSERVING:
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
        """int32, in a form to be given."""
        return torch.cat(self._noted)
