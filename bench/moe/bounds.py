"""The bounds of an MoE layer: a dense layer of equal active FLOPs, the experts alone, and a plain matmul.

S tokens, M model, H hidden, E experts, C capacity, K choices of a token.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.moe.case import Case, Place
from bench.moe.size import Size


def dense(size: Size, place: Place) -> Case:
    """Return one feed-forward network of hidden size K·H on all tokens, without biases."""
    wide_hidden = size.k * size.hidden
    x_SM = place.tokens(size)
    wi_WM = place.parameter(wide_hidden, size.model, fan_in=size.model, seed=2)
    wo_MW = place.parameter(size.model, wide_hidden, fan_in=wide_hidden, seed=3)

    def forward() -> tuple[Tensor, ...]:
        return (F.linear(F.linear(x_SM, wi_WM).relu_(), wo_MW),)

    return Case(forward=forward, weights=[wi_WM, wo_MW], inputs=[x_SM], flops=size.flops, place=place)


def ideal(size: Size, place: Place) -> Case:
    """Return stacked matmuls on tokens that are already dispatched, [E, C, M], with perfect balance."""
    M, H, E = size.model, size.hidden, size.experts
    x_ECM = place.uniform(E, size.capacity, M).requires_grad_()
    wi_EMH = place.parameter(E, M, H, fan_in=M, seed=2)
    wo_EHM = place.parameter(E, H, M, fan_in=H, seed=3)

    def forward() -> tuple[Tensor, ...]:
        return (torch.bmm(torch.bmm(x_ECM, wi_EMH).relu_(), wo_EHM),)

    return Case(forward=forward, weights=[wi_EMH, wo_EHM], inputs=[x_ECM], flops=size.flops, place=place)


def matmul(n: int, place: Place) -> Case:
    """Return the n³ matmul whose rate counts as the device's peak, forward only."""
    a, b = place.uniform(n, n, seed=1), place.uniform(n, n, seed=2)
    return Case(forward=lambda: (a @ b,), weights=[], inputs=[], flops=2.0 * n**3, place=place)
