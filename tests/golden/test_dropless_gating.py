"""Dropless top-k gating (MegaBlocks, arXiv:2211.15841): a loop in float64, hand numbers, and the gates it contains."""

import pytest
import torch

from pipeline.model.moe.gates.token_choice import dropless_gating, top2_gating


def best_of_each_token(gates, k, valid):
    """Weights [S][E] of one group: the k largest gates over their sum."""
    weights = [[0.0] * len(row) for row in gates]
    for s, row in enumerate(gates):
        chosen = sorted(range(len(row)), key=lambda e: (-row[e], e))[:k] if valid[s] else []
        for e in chosen:
            weights[s][e] = row[e] / sum(row[i] for i in chosen)
    return weights


@pytest.mark.parametrize(("G", "S", "E", "k"), [(1, 1, 2, 1), (3, 40, 4, 2), (2, 30, 8, 3), (2, 20, 5, 5)])
def test_equals_the_loop_and_drops_nothing(G, S, E, k):
    source = torch.Generator().manual_seed(S * E + k)
    logits = torch.randn(G, S, E, generator=source, dtype=torch.float64) * 3
    valid = torch.rand(G, S, generator=source) > 0.2
    gating = dropless_gating(logits, k, valid_GS=valid)
    for g in range(G):
        expected = torch.tensor(best_of_each_token(logits[g].softmax(-1).tolist(), k, valid[g].tolist()))
        torch.testing.assert_close(gating.dense()[g].sum(-1).float(), expected)
    assert gating.capacity is None
    assert int(gating.kept) == int(gating.asked) == k * int(valid.sum())
    torch.testing.assert_close(gating.weight_GSK.sum(-1), valid.double())


def test_rows_of_each_expert_by_hand():
    """Three tokens choose e2 first, so it gets three rows. The other experts get the second choices."""
    logits = torch.tensor([[[0.3, 0.1, 0.6], [0.1, 0.2, 0.7], [0.4, 0.1, 0.5]]], dtype=torch.float64).log()
    route = dropless_gating(logits, 2, valid_GS=torch.ones(1, 3, dtype=torch.bool)).route()
    assert route.counts_E.tolist() == [2, 1, 3]
    assert route.token_X.tolist() == [0, 2, 1, 0, 1, 2]
    expected = [0.3 / 0.9, 0.4 / 0.9, 0.2 / 0.9, 0.6 / 0.9, 0.7 / 0.9, 0.5 / 0.9]
    torch.testing.assert_close(route.weight_X, torch.tensor(expected, dtype=torch.float64))


def test_two_choices_are_top_2_without_a_capacity_and_all_choices_are_the_softmax():
    logits = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    valid = torch.ones(2, 30, dtype=torch.bool)
    gating, top2 = dropless_gating(logits, 2, valid_GS=valid), top2_gating(logits, None, valid_GS=valid)
    torch.testing.assert_close(gating.dense(), top2.dense())
    torch.testing.assert_close(gating.losses["balance"], top2.losses["balance"])
    torch.testing.assert_close(dropless_gating(logits, 4, valid_GS=valid).dense().sum(-1), logits.softmax(-1))


@pytest.mark.parametrize(
    ("E", "k", "message"),
    [(1, 1, "at least 2 experts"), (4, 5, "k=5 choices .* got 4"), (4, 0, "k=0 gives a token no")],
)
def test_impossible_sizes_are_refused(E, k, message):
    with pytest.raises(ValueError, match=message):
        dropless_gating(torch.zeros(1, 3, E), k, valid_GS=torch.ones(1, 3, dtype=torch.bool))
