"""Batch-prioritised order (V-MoE, arXiv:2106.05974, section 4): slots go to the tokens with the largest first gate."""

import pytest
import torch

from pipeline.model.moe.gates.token_choice import top1_gating, top2_gating


def prioritized(gates, k, capacity, valid):
    """Return the slot of every kept choice of one group, by (token, expert).

    All first choices come in the order of falling first gates, then all second choices in the same order.
    """
    E = len(gates[0])
    real = [s for s in range(len(gates)) if valid[s]]
    queue = sorted(real, key=lambda s: (-max(gates[s]), s))
    slots, counts = {}, [0] * E
    for choice in range(k):
        for s in queue:
            expert = sorted(range(E), key=lambda e: (-gates[s][e], e))[choice]
            if counts[expert] < capacity:
                slots[s, expert] = counts[expert]
            counts[expert] += 1
    return slots


GATES = {1: top1_gating, 2: top2_gating}


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(("G", "S", "E", "capacity"), [(1, 1, 2, 1), (3, 40, 4, 5), (2, 50, 8, 30)])
def test_equals_the_loop_of_the_paper(k, G, S, E, capacity):
    source = torch.Generator().manual_seed(S * E + k)
    logits = torch.randn(G, S, E, generator=source, dtype=torch.float64) * 2
    logits[:, 1::5] = logits[:, ::5]  # ties, which go to the earlier token
    valid = torch.rand(G, S, generator=source) > 0.2
    gating = GATES[k](logits, capacity, valid_GS=valid, prioritized=True)
    plain = GATES[k](logits, None, valid_GS=valid).dense().sum(-1)
    for g in range(G):
        expected = torch.zeros(S, E, capacity, dtype=torch.float64)
        for (s, e), slot in prioritized(logits[g].softmax(-1).tolist(), k, capacity, valid[g].tolist()).items():
            expected[s, e, slot] = plain[g, s, e]  # the order changes no weight
        torch.testing.assert_close(gating.dense()[g], expected)


def test_the_surest_tokens_win_by_hand():
    """With capacity 2 and first gates 0.6, 0.9, 0.7, 0.8 for e0, the second and fourth tokens get its slots.

    Second choices are all for e1, in the same order, so the same two tokens get its slots.
    """
    logits = torch.tensor([[[0.6, 0.4], [0.9, 0.1], [0.7, 0.3], [0.8, 0.2]]], dtype=torch.float64).log()
    valid = torch.ones(1, 4, dtype=torch.bool)
    gating = top2_gating(logits, 2, valid_GS=valid, prioritized=True)
    assert gating.kept_GSK.tolist() == [[[False, False], [True, True], [False, False], [True, True]]]
    assert gating.position_GSK[0, [1, 3]].tolist() == [[0, 0], [1, 1]]
    in_order = top2_gating(logits, 2, valid_GS=valid)
    assert in_order.kept_GSK.tolist() == [[[True, True], [True, True], [False, False], [False, False]]]


@pytest.mark.parametrize("k", [1, 2])
def test_who_is_served_does_not_depend_on_the_order_of_tokens(k):
    source = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 60, 4, generator=source)
    order, valid = torch.randperm(60, generator=source), torch.ones(1, 60, dtype=torch.bool)
    straight = GATES[k](logits, 6, valid_GS=valid, prioritized=True)
    shuffled = GATES[k](logits[:, order], 6, valid_GS=valid, prioritized=True)
    assert int(straight.kept) < int(straight.asked)
    assert torch.equal(straight.kept_GSK[:, order], shuffled.kept_GSK)
    assert torch.equal(straight.position_GSK[:, order], shuffled.position_GSK)
    in_order = GATES[k](logits, 6, valid_GS=valid).kept_GSK[:, order]
    assert not torch.equal(in_order, GATES[k](logits[:, order], 6, valid_GS=valid).kept_GSK)


def test_a_dropped_second_choice_takes_a_slot_only_as_line_22_is_printed():
    logits = torch.tensor([[[0.5, 0.3, 0.2], [0.6, 0.25, 0.15]]]).log()
    valid = torch.ones(1, 2, dtype=torch.bool)
    rnd = torch.tensor([[0.0, 0.99]])  # the second token, first in the queue, drops its second choice
    kept = [
        top2_gating(logits, 1, valid_GS=valid, rnd_GS=rnd, prioritized=True, count_dropped_second=c).kept_GSK
        for c in (False, True)
    ]
    assert [k[0, :, 1].tolist() for k in kept] == [[True, False], [False, False]]
