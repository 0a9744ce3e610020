"""General top-k gating with a capacity: a plain loop in float64, hand numbers, and the gates that it contains."""

import pytest
import torch

from pipeline.model.moe.gates.choices import choose
from pipeline.model.moe.gates.token_choice import dropless_gating, top1_gating, top_k_of_choices


def gating_of(logits, k, capacity, valid, *, normalize=True):
    return top_k_of_choices(choose(logits, k, valid), capacity, valid_GS=valid, normalize=normalize)


def loop(gates, k, capacity, valid, normalize):
    """Weights [S][E] and the balance loss of one group. All n-th choices queue before any later one, by token."""
    S, E = len(gates), len(gates[0])
    order = [sorted(range(E), key=lambda e, row=row: (-row[e], e))[:k] for row in gates]
    weights, load, chosen, mean = [[0.0] * E for _ in gates], [0] * E, [0] * E, [0.0] * E
    real = [s for s in range(S) if valid[s]]
    for choice in range(k):
        for s in real:
            e = order[s][choice]
            chosen[e] += 1
            if capacity is None or load[e] < capacity:
                weights[s][e] = gates[s][e] / (sum(gates[s][i] for i in order[s]) if normalize else 1)
                load[e] += 1
    for e in range(E):
        mean[e] = sum(gates[s][e] for s in real) / max(len(real), 1)
    loss = sum(chosen[e] / max(k * len(real), 1) * mean[e] for e in range(E)) / E
    return weights, loss


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("G", "S", "E", "k", "capacity"), [(3, 40, 16, 8, 15), (2, 30, 64, 8, None), (2, 30, 5, 3, 9), (1, 1, 2, 1, 1)]
)
def test_equals_the_loop(G, S, E, k, capacity, normalize):
    source = torch.Generator().manual_seed(S * E + k)
    logits = torch.randn(G, S, E, generator=source, dtype=torch.float64) * 3
    valid = torch.rand(G, S, generator=source) > 0.2
    valid[0] &= G < 3  # an empty group
    gating = gating_of(logits, k, capacity, valid, normalize=normalize)
    kept = 0
    for g in range(G):
        weights, loss = loop(logits[g].softmax(-1).tolist(), k, capacity, valid[g].tolist(), normalize)
        torch.testing.assert_close(gating.dense()[g].sum(-1), torch.tensor(weights, dtype=torch.float64))
        assert gating.losses["balance"][g].item() == pytest.approx(loss, rel=1e-12)
        kept += sum(weight > 0 for row in weights for weight in row)
    assert int(gating.kept) == kept
    assert int(gating.asked) == k * int(valid.sum())
    assert (kept < int(gating.asked)) == (capacity in (9, 15))


def test_capacity_and_balance_by_hand():
    """Both tokens choose e2 and then e0. One slot each: token 0 gets both, token 1 none.

    e0 and e2 have half of the choices each. Their mean gates are 0.35 and 0.55, so the loss is (0.175 + 0.275) / 3.
    """
    logits = torch.tensor([[[0.3, 0.1, 0.6], [0.4, 0.1, 0.5]]], dtype=torch.float64).log()
    gating = gating_of(logits, 2, 1, torch.ones(1, 2, dtype=torch.bool))
    expected = torch.tensor([[[0.3 / 0.9, 0.0, 0.6 / 0.9], [0.0, 0.0, 0.0]]], dtype=torch.float64)
    torch.testing.assert_close(gating.dense().sum(-1), expected)
    assert int(gating.unserved) == 1
    assert gating.losses["balance"].item() == pytest.approx(0.15, rel=1e-12)


def test_the_balance_loss_is_uniform_where_experts_are_used_alike():
    """Each of 8 experts is among the 4 choices of half of the tokens, and gates are uniform on average: 1 / E²."""
    logits = torch.stack([torch.arange(8.0).roll(shift) for shift in range(8)]).unsqueeze(0).double()
    gating = gating_of(logits, 4, None, torch.ones(1, 8, dtype=torch.bool))
    assert gating.losses["balance"].item() == pytest.approx(1 / 64, rel=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
def test_without_a_capacity_it_is_dropless(normalize):
    logits = torch.randn(2, 30, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    valid = torch.ones(2, 30, dtype=torch.bool)
    gating = gating_of(logits, 3, None, valid, normalize=normalize)
    dropless = dropless_gating(logits, 3, valid_GS=valid, normalize=normalize)
    torch.testing.assert_close(gating.dense(), dropless.dense())
    assert torch.allclose(gating.weight_GSK.sum(-1), torch.ones((), dtype=torch.float64)) == normalize


def test_one_choice_that_is_not_normalised_is_top_1():
    logits = torch.randn(2, 30, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    valid = torch.ones(2, 30, dtype=torch.bool)
    one, top1 = gating_of(logits, 1, 3, valid, normalize=False), top1_gating(logits, 3, valid_GS=valid)
    assert torch.equal(one.dense(), top1.dense())
    torch.testing.assert_close(one.losses["balance"], top1.losses["balance"])
