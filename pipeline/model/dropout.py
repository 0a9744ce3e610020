"""Dropout that costs little on a CPU.

torch draws each of its zeros there from a Mersenne twister of its own (5 % of a step); one 64-bit draw
is enough for four.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LANES = 4  # draws of 16 bits in one of 64
LEVELS = 1 << 16


def dropout(x: Tensor, probability: float, training: bool) -> Tensor:
    """Zeros with the given probability, rounded to 1/65536 on a CPU, and the rest scaled so that the mean stays.

    Draws come from torch's default generator.
    """
    if not (training and probability and x.is_cpu):
        return F.dropout(x, probability, training)
    zeros = round(probability * LEVELS)
    draws = torch.empty(-(-x.numel() // LANES), dtype=torch.int64).random_(-(1 << 63), None)
    draws = draws.view(torch.int16)[: x.numel()].view(x.shape)
    kept = torch.ge(draws, zeros - LEVELS // 2, out=torch.empty_like(x, requires_grad=False))
    return x * kept.mul_(LEVELS / (LEVELS - zeros))
