"""The sizes of a layer under test. This module does not import torch, so that it loads fast."""

import math
from dataclasses import dataclass

TRAINING_FACTOR = 3  # forward, gradient to inputs, gradient to weights


@dataclass(frozen=True, kw_only=True)
class Size:
    """The sizes of a layer: M, H, S (all tokens are one group), E, and the choices of a token."""

    model: int
    hidden: int
    tokens: int
    experts: int
    k: int = 2

    @property
    def capacity(self) -> int:
        """The capacity C at capacity factor 1."""
        return max(1, math.ceil(self.k * self.tokens / self.experts))

    @property
    def flops(self) -> float:
        """Useful FLOPs of the experts' matmuls, forward and backward. A multiply-add counts as two."""
        return TRAINING_FACTOR * 2 * 2 * self.k * self.tokens * self.model * self.hidden
