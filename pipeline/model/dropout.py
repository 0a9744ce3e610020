"""Dropout that costs little on a CPU.

torch draws every zero by itself from a Mersenne twister, which takes 5 % of a step. Here one 64-bit draw serves four
elements.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LANES = 4  # 16-bit draws in a 64-bit draw
LEVELS = 1 << 16


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Set elements to zero with the given probability, and scale the others so that the mean stays.

    On a CPU the probability is rounded to 1/65536. Draws come from torch's default generator.
    """
    if not (training and probability and x.is_cpu):
        return F.dropout(x, probability, training)
    zeros = round(probability * LEVELS)
    draws = torch.empty(-(-x.numel() // LANES), dtype=torch.int64).random_(-(1 << 63), None)
    draws = draws.view(torch.int16)[: x.numel()].view(x.shape)
    kept = torch.ge(draws, zeros - LEVELS // 2, out=torch.empty_like(x, requires_grad=False))
    return x * kept.mul_(LEVELS / (LEVELS - zeros))
