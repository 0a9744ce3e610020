"""Hierarchical gating and its losses (Shazeer et al. 2017, arXiv:1701.06538, appendix B).

They equal loops in float64, figures by hand, and the flat gate.
"""

import math

import pytest
import torch

from pipeline.model.moe.gates.noisy_top_k import hierarchical_gating, noisy_top_k_gating
from tests.golden.test_noisy_topk_gating import cv_squared
from tests.golden.test_noisy_topk_gating import noisy_top_k as gate


def appendix_b(tokens, k, A, B):
    """Apply appendix B to the tokens of one group. Returns weights [S][A·B], Importance_H and Load_H [A·B].

    tokens: for each token (primary, secondary), each of them (logits, scale, noise).
    """
    weights, load_primary = [], [0.0] * A
    within, size = [[0.0] * B for _ in range(A)], [0] * A
    for primary, secondary in tokens:
        gates, chances = gate(*primary, k)
        row = [0.0] * (A * B)
        for i in range(A):
            load_primary[i] += chances[i]
            inner, inner_chances = gate(*(part[i] for part in secondary), k)
            for j in range(B):
                row[i * B + j] = gates[i] * inner[j]
            if gates[i] > 0:
                size[i] += 1
                within[i] = [a + b for a, b in zip(within[i], inner_chances, strict=True)]
        weights.append(row)
    importance = [sum(row[e] for row in weights) for e in range(A * B)]
    load = [load_primary[i] * within[i][j] / size[i] if size[i] else 0.0 for i in range(A) for j in range(B)]
    return weights, importance, load


def sample(G, S, A, B, seed):
    source = torch.Generator().manual_seed(seed)
    primary = torch.randn(3, G, S, A, generator=source, dtype=torch.float64) * 1.5
    secondary = torch.randn(3, G, S, A, B, generator=source, dtype=torch.float64) * 1.5
    valid = torch.rand(G, S, generator=source) > 0.2
    valid[:, 0] = True
    return primary, secondary, valid


def gating_of(primary, secondary, k, capacity, valid):
    return hierarchical_gating(
        primary[0],
        primary[1],
        secondary[0],
        secondary[1],
        k,
        capacity,
        valid_GS=valid,
        primary_noise_GSA=primary[2],
        secondary_noise_GSAB=secondary[2],
    )


@pytest.mark.parametrize(
    ("G", "S", "A", "B", "k"), [(1, 1, 2, 2, 1), (3, 40, 4, 4, 2), (2, 30, 3, 5, 2), (2, 20, 2, 4, 2), (2, 20, 4, 1, 1)]
)
def test_equals_the_formulas_of_the_paper(G, S, A, B, k):
    primary, secondary, valid = sample(G, S, A, B, seed=S * A + B)
    gating = gating_of(primary, secondary, k, None, valid)
    assert gating.num_experts == A * B
    assert gating.expert_GSK.shape == (G, S, k * k)
    for g in range(G):
        tokens = [(primary[:, g, s].tolist(), secondary[:, g, s].tolist()) for s in range(S) if valid[g, s]]
        weights, importance, load = appendix_b(tokens, k, A, B)
        expected = torch.tensor(weights, dtype=torch.float64)
        torch.testing.assert_close(gating.dense()[g, valid[g]].sum(-1), expected)
        assert gating.losses["importance"][g].item() == pytest.approx(cv_squared(importance), rel=1e-9)
        assert gating.losses["load"][g].item() == pytest.approx(cv_squared(load), rel=1e-9)


def test_a_group_that_nobody_chose_has_no_load():
    """Load_H is 0 for |X_i| = 0, although Load_primary is not 0."""
    primary, secondary, _ = sample(1, 3, 4, 2, seed=1)
    primary[0, ..., 3] = -6.0  # never chosen, because the noise is small
    primary[1:, ..., 3] = 0.0
    valid = torch.ones(1, 3, dtype=torch.bool)
    gating = gating_of(primary, secondary, 1, None, valid)
    tokens = [(primary[:, 0, s].tolist(), secondary[:, 0, s].tolist()) for s in range(3)]
    _, _, load = appendix_b(tokens, 1, 4, 2)
    assert load[6:] == [0.0, 0.0]
    assert gating.losses["load"].item() == pytest.approx(cv_squared(load), rel=1e-9)


def test_order_of_choices_and_weights_by_hand():
    """With A = B = 3 and k = 2, a token has experts 1, 0 of group 2 (e^2), then experts 2, 1 of group 0 (e^1)."""
    primary = torch.tensor([[[1.0, 0.0, 2.0]]], dtype=torch.float64)
    secondary = torch.tensor([[[[0.0, 1.0, 4.0], [9.0, 9.0, 9.0], [2.0, 2.5, 0.0]]]], dtype=torch.float64)
    valid = torch.ones(1, 1, dtype=torch.bool)
    gating = hierarchical_gating(primary, primary, secondary, secondary, 2, None, valid_GS=valid)
    assert gating.losses == {}
    assert gating.expert_GSK.tolist() == [[[7, 6, 2, 1]]]

    def share(difference):
        return 1 / (1 + math.exp(-difference))

    best, inner, outer = share(1), share(0.5), share(3)
    expected = [best * inner, best * (1 - inner), (1 - best) * outer, (1 - best) * (1 - outer)]
    assert gating.weight_GSK[0, 0].tolist() == pytest.approx(expected)


def test_slots_go_to_the_best_group_first():
    """Choices of all tokens in their first groups come before any choice in a second group."""
    primary, secondary = torch.zeros(1, 2, 2), torch.zeros(1, 2, 2, 2)
    primary[0, 0, 1] = primary[0, 1, 0] = 1.0  # the first token prefers group 1, the second group 0
    valid = torch.ones(1, 2, dtype=torch.bool)
    gating = hierarchical_gating(primary, primary, secondary, secondary, 2, 1, valid_GS=valid)
    assert gating.expert_GSK.tolist() == [[[2, 3, 0, 1], [0, 1, 2, 3]]]
    assert gating.kept_GSK.tolist() == [[[True, True, False, False]] * 2]


def test_with_all_groups_the_loads_are_those_of_the_second_level():
    """With k = A, Load_primary = |X_i| = |X|, so Load_H is Load_i, which is that of the flat gate in each group."""
    primary, secondary, valid = sample(1, 20, 2, 4, seed=2)
    gating = gating_of(primary, secondary, 2, None, valid)
    loads = []
    for i in range(2):
        for j in range(4):
            rows = [gate(*secondary[:, 0, s, i].tolist(), 2)[1][j] for s in range(20) if valid[0, s]]
            loads.append(sum(rows))
    assert gating.losses["load"].item() == pytest.approx(cv_squared(loads), rel=1e-9)


def test_groups_of_one_expert_are_the_flat_gate():
    primary, secondary, valid = sample(2, 30, 5, 1, seed=3)
    gating = gating_of(primary, secondary, 1, 4, valid)
    flat = noisy_top_k_gating(primary[0], primary[1], 1, 4, valid_GS=valid, noise_GSE=primary[2])
    torch.testing.assert_close(gating.dense(), flat.dense())
    torch.testing.assert_close(gating.losses["importance"], flat.losses["importance"])


def test_losses_reach_both_levels():
    primary, secondary, valid = sample(2, 6, 3, 3, seed=4)
    inputs = [t.clone().requires_grad_() for t in (*primary[:2], *secondary[:2])]

    def losses(primary_logits, primary_scale, secondary_logits, secondary_scale):
        gating = gating_of(
            (primary_logits, primary_scale, primary[2]),
            (secondary_logits, secondary_scale, secondary[2]),
            2,
            None,
            valid,
        )
        return gating.losses["importance"], gating.losses["load"]

    assert torch.autograd.gradcheck(losses, inputs)
    for value in losses(*inputs):
        for gradient in torch.autograd.grad(value.sum(), inputs, retain_graph=True):
            assert float(gradient.abs().sum()) > 0


@pytest.mark.parametrize(
    ("A", "B", "k", "capacity", "message"),
    [
        (1, 4, 1, None, "at least 2 experts"),
        (2, 4, 3, None, "k=3 choices .* got 2"),
        (4, 2, 3, None, "in each of the 4 groups, got 2"),
        (4, 4, 0, None, "k=0 gives"),
        (4, 4, 2, 0, "capacity=0 would drop"),
    ],
)
def test_impossible_sizes_are_refused(A, B, k, capacity, message):
    primary, secondary = torch.zeros(1, 3, A), torch.zeros(1, 3, A, B)
    with pytest.raises(ValueError, match=message):
        hierarchical_gating(
            primary, primary, secondary, secondary, k, capacity, valid_GS=torch.ones(1, 3, dtype=torch.bool)
        )


def test_noise_at_one_level_alone_is_refused():
    primary, secondary = torch.zeros(1, 3, 2), torch.zeros(1, 3, 2, 2)
    valid = torch.ones(1, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="both levels"):
        hierarchical_gating(
            primary, primary, secondary, secondary, 1, None, valid_GS=valid, primary_noise_GSA=torch.zeros(1, 3, 2)
        )
