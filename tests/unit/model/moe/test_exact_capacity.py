"""Capacities and shares follow from the decimals that users write, in exact arithmetic."""

import math
from fractions import Fraction

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.model.moe.gates.capacity import capacity_of
from pipeline.model.moe.gates.expert_choice import expert_choice_gating


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
