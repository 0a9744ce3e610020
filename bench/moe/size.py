"""Sizes of a layer under test; free of torch so that it loads fast."""

import math
from dataclasses import dataclass

TRAINING_FACTOR = 3  # forward, gradient to inputs, gradient to weights


@dataclass(frozen=True, kw_only=True)
class Size:
    """model, hidden: M and H. tokens: S, all in one group. experts: E. k: choices of a token."""

    model: int
    hidden: int
    tokens: int
    experts: int
    k: int = 2

    @property
    def capacity(self) -> int:
        """C at capacity factor 1."""
        return max(1, math.ceil(self.k * self.tokens / self.experts))

    @property
    def flops(self) -> float:
        """Useful matmul FLOPs of the experts, forward and backward; a multiply-add counts two."""
        return TRAINING_FACTOR * 2 * 2 * self.k * self.tokens * self.model * self.hidden
