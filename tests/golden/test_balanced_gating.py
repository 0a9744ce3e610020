"""Strictly balanced gating (Shazeer et al. 2017, arXiv:1701.06538, appendix F) as loops in float64, and by hand."""

import math

import pytest
import torch

from pipeline.model.moe.gates.expert_choice import balanced_gating


def normalised(gates, mask):
    """Equation 16, G_i = g_i M_i / sum_j g_j M_j; zero where the mask is."""
    weights = []
    for row, kept in zip(gates, mask, strict=True):
        total = sum(g for g, m in zip(row, kept, strict=True) if m)
        weights.append([g / total if m else 0.0 for g, m in zip(row, kept, strict=True)])
    return weights


def batchwise(gates, k, real):
    """M_batchwise: the m best tokens of each expert, m = k·|X|/n, rounded up."""
    E = len(gates[0])
    m = math.ceil(k * len(real) / E)
    best = [sorted(real, key=lambda s: (-gates[s][e], s))[:m] for e in range(E)]
    return [[s in best[e] for e in range(E)] for s in range(len(gates))]


def by_threshold(gates, thresholds, real):
    """Return M_threshold."""
    return [[s in real and g > t for g, t in zip(gates[s], thresholds, strict=True)] for s in range(len(gates))]


def l_batchwise(gates, thresholds, k, real):
    """Return equation 20 divided by |X|."""
    above, best = by_threshold(gates, thresholds, real), batchwise(gates, k, real)
    total = sum((above[s][e] - best[s][e]) * (gates[s][e] - thresholds[e]) for s in real for e in range(len(gates[0])))
    return total / max(len(real), 1)


def sample(G, S, E, seed):
    source = torch.Generator().manual_seed(seed)
    logits = torch.randn(G, S, E, generator=source, dtype=torch.float64) * 1.5
    thresholds = torch.rand(E, generator=source, dtype=torch.float64) * 2 / E
    return logits, thresholds, torch.rand(G, S, generator=source) > 0.2


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("G", "S", "E", "k"), [(1, 1, 2, 1), (3, 40, 4, 2), (2, 30, 7, 3), (2, 9, 3, 3)])
def test_equals_the_formulas_of_the_paper(G, S, E, k, training):
    logits, thresholds, valid = sample(G, S, E, seed=S * E)
    logits[:, 1::4] = logits[:, : S - 1 : 4]  # ties, which go to the earlier token
    selection = balanced_gating(logits, thresholds, k, valid_GS=valid, training=training)
    assert selection.capacity == (math.ceil(k * S / E) if training else None)
    for g in range(G):
        gates, real = logits[g].softmax(-1).tolist(), [s for s in range(S) if valid[g, s]]
        mask = batchwise(gates, k, real) if training else by_threshold(gates, thresholds.tolist(), real)
        expected = torch.tensor(normalised(gates, mask), dtype=torch.float64)
        torch.testing.assert_close(selection.dense()[g].sum(-1), expected)
        if training:
            loss = l_batchwise(gates, thresholds.tolist(), k, real)
            assert selection.losses["threshold"][g].item() == pytest.approx(loss, rel=1e-9)
    assert set(selection.losses) == ({"threshold"} if training else set())


def test_every_expert_gets_exactly_the_same_number():
    logits, thresholds, valid = sample(3, 41, 4, seed=1)
    selection = balanced_gating(logits * 5, thresholds, 2, valid_GS=valid, training=True)
    for g in range(3):
        per_expert = math.ceil(2 * int(valid[g].sum()) / 4)
        assert (selection.dense()[g].sum(-1) > 0).sum(0).tolist() == [per_expert] * 4


def test_by_hand():
    """Four tokens, two experts, k = 1: m = 2. Gates of e0: 0.9, 0.8, 0.7, 0.2; of e1 one minus it.

    Batchwise e0 takes tokens 0, 1 and e1 tokens 2, 3: the third token goes to its second best. Thresholds 0.75 and 0.4:
    e0 is above at tokens 0, 1, e1 only at token 3, so the third token has no expert at inference, and the loss sees one
    difference, (0 - 1) · (0.3 - 0.4) = 0.1 over 4 tokens.
    """
    logits = torch.tensor([[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.2, 0.8]]], dtype=torch.float64).log()
    thresholds = torch.tensor([0.75, 0.4], dtype=torch.float64, requires_grad=True)
    valid = torch.ones(1, 4, dtype=torch.bool)
    training = balanced_gating(logits, thresholds, 1, valid_GS=valid, training=True)
    assert training.token_X.tolist() == [0, 1, 2, 3]
    assert training.weight_X.tolist() == pytest.approx([1, 1, 1, 1])  # normalised over the one expert of each
    assert training.losses["threshold"].item() == pytest.approx(0.1 / 4)
    (gradient,) = torch.autograd.grad(training.losses["threshold"].sum(), thresholds)
    assert gradient.tolist() == pytest.approx(
        [0, 1 / 4]
    )  # the threshold must fall, because e1 took one token more than are above it
    inference = balanced_gating(logits, thresholds, 1, valid_GS=valid, training=False)
    assert inference.token_X.tolist() == [0, 1, 3]
    assert inference.route().counts_E.tolist() == [2, 1]
    assert int(inference.unserved) == 1


def test_a_token_of_several_experts_is_normalised_over_them_by_hand():
    """With gates 0.5, 0.3, 0.2, experts 0 and 2 are above their thresholds."""
    logits = torch.tensor([[[0.5, 0.3, 0.2]]], dtype=torch.float64).log()
    thresholds = torch.tensor([0.4, 0.35, 0.1], dtype=torch.float64)
    selection = balanced_gating(logits, thresholds, 2, valid_GS=torch.ones(1, 1, dtype=torch.bool), training=False)
    assert selection.dense()[0, 0, :, 0].tolist() == pytest.approx([0.5 / 0.7, 0, 0.2 / 0.7])


def test_loss_is_zero_exactly_where_the_masks_agree_and_never_negative():
    logits, _, valid = sample(1, 40, 4, seed=2)
    gates = logits.softmax(-1).masked_fill(~valid.unsqueeze(-1), -1).sort(dim=1, descending=True).values[0]
    m = math.ceil(2 * int(valid.sum()) / 4)
    between = (gates[m - 1] + gates[m]) / 2  # the m-th best is above, the next is not

    def loss(thresholds):
        selection = balanced_gating(logits, thresholds, 2, valid_GS=valid, training=True)
        return selection.losses["threshold"].item()

    assert loss(between) == 0
    assert loss(between + 0.1) > 0
    assert loss(between - 0.1) > 0


def test_descent_on_the_loss_learns_the_batchwise_mask():
    logits, thresholds, valid = sample(1, 200, 4, seed=3)
    thresholds.requires_grad_()
    for _ in range(400):
        loss = balanced_gating(logits, thresholds, 2, valid_GS=valid, training=True).losses["threshold"].sum()
        (gradient,) = torch.autograd.grad(loss, thresholds)
        thresholds.data -= 0.02 * gradient
    training, inference = (
        balanced_gating(logits, thresholds, 2, valid_GS=valid, training=t).dense().sum(-1) > 0 for t in (True, False)
    )
    assert (training == inference).double().mean() > 0.98  # a step moves a threshold past a token or two of 200


def test_gradients_are_those_of_the_formulas():
    logits, thresholds, valid = sample(2, 6, 3, seed=4)
    inputs = (logits.requires_grad_(), thresholds.requires_grad_())

    def values(logits, thresholds):
        selection = balanced_gating(logits, thresholds, 2, valid_GS=valid, training=True)
        return selection.losses["threshold"], selection.weight_X

    assert torch.autograd.gradcheck(values, inputs)
    for gradient in torch.autograd.grad(values(*inputs)[0].sum(), inputs):
        assert float(gradient.abs().sum()) > 0


def test_a_gate_that_nearly_underflows_is_still_normalised():
    """Two tokens, k = 1, gates of e0 both 1 in float32, so e0 takes the first and e1 the second, whose gate there is
    exp(-95) = 5e-42, a subnormal number: as its only expert it has weight 1."""
    logits = torch.tensor([[[400.0, 0.0], [95.0, 0.0]]], requires_grad=True)
    selection = balanced_gating(
        logits, torch.full((2,), 0.5), 1, valid_GS=torch.ones(1, 2, dtype=torch.bool), training=True
    )
    weights = selection.dense().sum(-1)
    assert weights.tolist() == [[[1.0, 0.0], [0.0, 1.0]]]
    (gradient,) = torch.autograd.grad(weights.square().sum() + selection.losses["threshold"].sum(), logits)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("E", "k", "message"), [(1, 1, "at least 2 experts"), (4, 5, "k=5 choices .* got 4"), (4, 0, "k=0 gives")]
)
@pytest.mark.parametrize("training", [True, False])
def test_impossible_sizes_are_refused(E, k, message, training):
    with pytest.raises(ValueError, match=message):
        balanced_gating(
            torch.zeros(1, 3, E), torch.zeros(E), k, valid_GS=torch.ones(1, 3, dtype=torch.bool), training=training
        )
