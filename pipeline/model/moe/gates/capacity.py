"""Sizes that follow from a gate's settings: capacities of experts, and the router's width. Free of torch."""

import math
from fractions import Fraction

from pipeline.model.moe.gates.config import GateConfig

_DIM = -1  # stands for M in shapes, and is the size of no other dimension


def exact_factor(factor: float) -> Fraction:
    """Return the decimal that a user wrote, up to nine digits after the point: 1.1 is 11/10, which no float is."""
    return Fraction(str(factor)).limit_denominator(10**9)


def capacity_of(factor: float, k: float, num_tokens: int, num_experts: int) -> int:
    """Return C of a group of `num_tokens`: ceil(factor · k · S / E) in exact arithmetic, at least 1."""
    return max(1, -(-exact_factor(factor) * exact_factor(k) * num_tokens // num_experts))


def training_capacity(gate: GateConfig, num_tokens: int, num_experts: int) -> int | None:
    """Return the rows of an expert and group in training, or None if an expert takes all tokens that chose it."""
    factor = gate.training_factor
    return capacity_of(factor, gate.experts_per_token, num_tokens, num_experts) if factor else None


def router_outputs(gate: GateConfig, num_experts: int) -> int:
    """Count the numbers that a gate's router computes for a token: one for each row of a weight [..., M]."""
    shapes = gate.router_shapes(num_experts, _DIM).values()
    return sum(math.prod(sizes[:-1]) for sizes in shapes if sizes[-1] == _DIM)
