"""Capacities and shares follow from the decimals that users write, in exact arithmetic."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from bench.moe.size import Size
from pipeline.model.moe.gates.capacity import capacity_of, training_capacity
from pipeline.model.moe.gates.config import BalancedConfig, ExpertChoiceConfig, NoisyTopKConfig, Top1Config, Top2Config
from pipeline.model.moe.gates.expert_choice import expert_choice_gating
from pipeline.model.moe.routers import build_router
from pipeline.model.moe.routing import slots
from pipeline.model.moe.tokens import Tokens


@example(digits=11, places=1, k=2, num_tokens=100, num_experts=10)  # 22, and 23 in floats
@given(
    digits=st.integers(1, 10**5),
    places=st.integers(0, 9),
    k=st.integers(1, 8),
    num_tokens=st.integers(1, 5000),
    num_experts=st.integers(1, 2048),
)
def test_capacity_is_that_of_the_decimal_that_is_written(digits, places, k, num_tokens, num_experts):
    factor = float(f"{digits}e-{places}")
    exact = math.ceil(Fraction(str(factor)) * k * num_tokens / num_experts)
    assert capacity_of(factor, k, num_tokens, num_experts) == max(1, exact)


@example(tenths=11, num_experts=10, lengths=[100, 0])  # 11 each; floats give 12
@given(
    tenths=st.integers(1, 40),
    num_experts=st.integers(2, 64),
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=5),
)
def test_expert_choice_takes_the_exact_share_of_every_group(tenths, num_experts, lengths):
    """The share is exact in groups of any size, up to 4.0 experts a token in tenths, which floats cannot represent."""
    factor = min(tenths / 10, num_experts)
    valid_GS = torch.arange(max(max(lengths), 1)) < torch.tensor(lengths)[:, None]
    logits_GSE = torch.randn(*valid_GS.shape, num_experts, generator=torch.Generator().manual_seed(0))
    selection = expert_choice_gating(logits_GSE, factor, valid_GS=valid_GS)
    taken_EG = selection.filled_X.view(num_experts, len(lengths), -1).sum(-1)
    exact = [math.ceil(Fraction(str(factor)) * length / num_experts) for length in lengths]
    assert taken_EG.tolist() == [exact] * num_experts
    sentence_GS = torch.zeros_like(valid_GS, dtype=torch.long)
    alone = expert_choice_gating(logits_GSE, factor, valid_GS=valid_GS, sentence_GS=sentence_GS)
    assert alone.filled_X.sum() == num_experts * sum(exact)


@given(
    factor=st.sampled_from([1.0, 1.25, 1.5, 2.0]),
    k=st.integers(1, 4),
    num_tokens=st.integers(1, 1 << 20),
    num_experts=st.integers(2, 4096),
)
def test_factors_that_floats_represent_give_what_floats_gave(factor, k, num_tokens, num_experts):
    in_floats = max(1, math.ceil(factor * k * num_tokens / num_experts))
    assert capacity_of(factor, k, num_tokens, num_experts) == in_floats


@given(tokens=st.integers(1, 1 << 20), experts=st.integers(2, 4096), k=st.integers(1, 4))
def test_benchmarks_compare_layers_of_the_same_capacity(tokens, experts, k):
    size = Size(model=8, hidden=8, tokens=tokens, experts=experts, k=k)
    assert size.capacity == capacity_of(1.0, k, tokens, experts)


@pytest.mark.parametrize(
    ("gate", "capacity"),
    [
        (Top2Config(capacity_factor=1.1), 22),
        (Top1Config(capacity_factor=2.2), 22),
        (NoisyTopKConfig(k=2, capacity_factor=1.1), 22),
        (ExpertChoiceConfig(capacity_factor=2.2), 22),
        (BalancedConfig(k=2), 20),
    ],
    ids=lambda value: getattr(value, "kind", value),
)
def test_plan_model_and_evaluation_have_the_exact_capacity(gate, capacity):
    """100 tokens, 10 experts and 2.2 expert choices a token with capacity, which floats round up to 23."""
    assert training_capacity(gate, 100, 10) == capacity
    router = build_router(8, 10, gate, with_z=False)
    for parameter in router.parameters():
        torch.nn.init.normal_(parameter)
    tokens = Tokens.of_mask(torch.ones(4, 25, dtype=torch.bool))
    assert router(torch.randn(1, 100, 8), tokens).decision.capacity == capacity
    if gate.queues:
        k = gate.experts_per_token
        router.eval().evaluation_factor = 2.2 / k
        assert slots(router, 0.0, k, tokens, 10) == 22
