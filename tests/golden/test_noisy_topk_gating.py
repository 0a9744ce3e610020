"""Noisy top-k gating and its losses (Shazeer et al. 2017, arXiv:1701.06538, sections 2.1 and 4, appendix A).

They equal loops over tokens in float64, figures by hand, and shares of repeated draws.
"""

import math
import statistics

import pytest
import torch

from pipeline.model.moe.gates.noisy_top_k import noisy_top_k_gating


def softplus(x):
    return math.log1p(math.exp(x))


def normal_cdf(x):
    return (1 + math.erf(x / math.sqrt(2))) / 2


def cv_squared(values):
    mean = statistics.fmean(values)
    return statistics.pvariance(values) / mean**2 if mean else 0.0


def kth_excluding(values, k, i):
    return sorted((v for j, v in enumerate(values) if j != i), reverse=True)[k - 1]


def noisy_top_k(logits, scale, noise, k):
    """Return G(x) and P(x, i) of one token, [E] each."""
    E = len(logits)
    h = [logits[e] + noise[e] * softplus(scale[e]) for e in range(E)]
    kept = sorted(range(E), key=lambda e: (-h[e], e))[:k]
    total = sum(math.exp(h[e]) for e in kept)
    gates = [math.exp(h[e]) / total if e in kept else 0.0 for e in range(E)]
    if k == E:
        return gates, [1.0] * E
    return gates, [normal_cdf((logits[e] - kth_excluding(h, k, e)) / softplus(scale[e])) for e in range(E)]


def sample(G, S, E, seed):
    source = torch.Generator().manual_seed(seed)
    logits, scale, noise = torch.randn(3, G, S, E, generator=source, dtype=torch.float64) * 1.5
    valid = torch.rand(G, S, generator=source) > 0.2
    valid[:, 0] = True
    return logits, scale, noise, valid


@pytest.mark.parametrize(
    ("G", "S", "E", "k"), [(1, 1, 2, 1), (3, 40, 4, 2), (2, 30, 8, 4), (2, 20, 5, 1), (2, 9, 3, 3)]
)
def test_equals_the_formulas_of_the_paper(G, S, E, k):
    logits, scale, noise, valid = sample(G, S, E, seed=S * E + k)
    gating = noisy_top_k_gating(logits, scale, k, None, valid_GS=valid, noise_GSE=noise)
    for g in range(G):
        rows = [
            noisy_top_k(logits[g, s].tolist(), scale[g, s].tolist(), noise[g, s].tolist(), k)
            for s in range(S)
            if valid[g, s]
        ]
        gates, probabilities = (torch.tensor(part, dtype=torch.float64) for part in zip(*rows, strict=True))
        torch.testing.assert_close(gating.dense()[g, valid[g]].sum(-1), gates)
        assert gating.losses["importance"][g].item() == pytest.approx(cv_squared(gates.sum(0).tolist()), rel=1e-9)
        expected = cv_squared(probabilities.sum(0).tolist())
        # CV² is a difference of sums, so an even load leaves rounding errors
        assert gating.losses["load"][g].item() == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_by_hand():
    """Two tokens have three experts, k = 2 and softplus(raw) = 1 and 2. Noise puts e2 before e1 for the first token.

    First: x·Wg = (2, 1, 0), noise (0, -1, 1), deviation 1: H = (2, 0, 1); kept e0, e2 with e^2 : e^1.
    P_0 = Phi(2 - 0): the second largest of the others (0, 1) is 0. P_1 = Phi(1 - 1), P_2 = Phi(0 - 0).
    Second: x·Wg = (0, 3, 1), no noise drawn, deviation 2: kept e1, e2 with e^3 : e^1.
    P_0 = Phi((0 - 1) / 2), P_1 = Phi((3 - 0) / 2), P_2 = Phi((1 - 0) / 2).
    """
    raw = [math.log(math.e - 1), math.log(math.e**2 - 1)]
    assert [softplus(r) for r in raw] == pytest.approx([1, 2])
    gating = noisy_top_k_gating(
        torch.tensor([[[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]], dtype=torch.float64),
        torch.tensor([[[raw[0]] * 3, [raw[1]] * 3]], dtype=torch.float64),
        2,
        None,
        valid_GS=torch.ones(1, 2, dtype=torch.bool),
        noise_GSE=torch.tensor([[[0.0, -1.0, 1.0], [0.0, 0.0, 0.0]]], dtype=torch.float64),
    )
    large, larger = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))
    assert gating.expert_GSK.tolist() == [[[0, 2], [1, 2]]]
    assert gating.weight_GSK[0].tolist() == [pytest.approx([large, 1 - large]), pytest.approx([larger, 1 - larger])]
    importance = [large, larger, 1 - large + 1 - larger]
    assert gating.losses["importance"].item() == pytest.approx(cv_squared(importance))
    phi = {0.5: 0.6914624613, 1.5: 0.9331927987, 2.0: 0.9772498681}  # from a table
    load = [phi[2.0] + 1 - phi[0.5], 0.5 + phi[1.5], 0.5 + phi[0.5]]
    assert gating.losses["load"].item() == pytest.approx(cv_squared(load), rel=1e-8)


def test_load_is_what_drawing_one_noise_again_gives():
    """P(x, i) is the share of draws of the noise of expert i alone that keep it (appendix A). One token, E = 5."""
    num, E, k = 20000, 5, 2
    logits, scale, noise, _ = sample(1, 1, E, seed=4)
    source = torch.Generator().manual_seed(5)
    rates = []
    for e in range(E):
        draws = noise.expand(1, num, E).clone()
        draws[..., e] = torch.randn(1, num, generator=source, dtype=torch.float64)
        redrawn = noisy_top_k_gating(
            logits.expand(1, num, E),
            scale.expand(1, num, E),
            k,
            None,
            valid_GS=torch.ones(1, num, dtype=torch.bool),
            noise_GSE=draws,
        )
        rates.append(float((redrawn.expert_GSK == e).any(-1).double().mean()))
    _, probabilities = noisy_top_k(*(t.flatten().tolist() for t in (logits, scale, noise)), k)
    # four standard deviations of the least certain rate
    assert rates == pytest.approx(probabilities, abs=4 * math.sqrt(0.25 / num))


def test_losses_are_differentiable_in_logits_and_noise_scale():
    logits, scale, noise, valid = sample(2, 6, 4, seed=6)
    inputs = (logits.requires_grad_(), scale.requires_grad_())

    def losses(logits, scale):
        gating = noisy_top_k_gating(logits, scale, 2, None, valid_GS=valid, noise_GSE=noise)
        return gating.losses["importance"], gating.losses["load"], gating.weight_GSK

    assert torch.autograd.gradcheck(losses, inputs)
    for value in losses(*inputs):
        for gradient in torch.autograd.grad(value.square().sum(), inputs, retain_graph=True):
            assert float(gradient.abs().sum()) > 0


def test_zero_initialised_gate_is_almost_balanced():
    """Wg = Wnoise = 0 "yields no signal and some noise": H = noise · ln 2, and each expert has k/E of the load."""
    num, E, k = 20000, 8, 2
    zeros = torch.zeros(1, num, E)
    noise = torch.randn(1, num, E, generator=torch.Generator().manual_seed(7))
    gating = noisy_top_k_gating(zeros, zeros, k, None, valid_GS=torch.ones(1, num, dtype=torch.bool), noise_GSE=noise)
    torch.testing.assert_close(gating.weight_GSK, (noise.topk(k).values * math.log(2)).softmax(-1))
    counts = torch.bincount(gating.expert_GSK.flatten(), minlength=E) / num
    # four standard deviations of the share of tokens that an expert gets
    assert counts.tolist() == pytest.approx([k / E] * E, abs=4 * math.sqrt(k / E * (1 - k / E) / num))


def test_without_noise_there_is_no_loss_and_the_logits_decide():
    logits, scale, _, valid = sample(2, 20, 4, seed=8)
    gating = noisy_top_k_gating(logits, scale, 2, None, valid_GS=valid)
    assert gating.losses == {}
    assert torch.equal(gating.expert_GSK, logits.topk(2).indices)
    torch.testing.assert_close(gating.weight_GSK[valid], logits.topk(2).values.softmax(-1)[valid])


def test_capacity_drops_late_choices_after_the_losses():
    logits, scale, noise, valid = sample(1, 30, 4, seed=9)
    free, tight = (
        noisy_top_k_gating(logits, scale, 2, capacity, valid_GS=valid, noise_GSE=noise) for capacity in (None, 3)
    )
    assert int(tight.kept) == 4 * 3 < int(free.kept)
    torch.testing.assert_close(tight.weight_GSK, free.weight_GSK * tight.kept_GSK)
    assert torch.equal(tight.losses["importance"], free.losses["importance"])


def test_ties_go_to_the_lower_index_and_have_even_odds():
    """With equal H the first k experts are kept, and P = Phi(0) for every expert, so the load is even."""
    zeros = torch.zeros(1, 3, 4)
    valid = torch.ones(1, 3, dtype=torch.bool)
    gating = noisy_top_k_gating(zeros, zeros, 2, None, valid_GS=valid, noise_GSE=zeros)
    assert gating.expert_GSK.tolist() == [[[0, 1]] * 3]
    assert gating.losses["load"].item() == 0
    assert gating.losses["importance"].item() == pytest.approx(1)  # importances (3/2, 3/2, 0, 0)


@pytest.mark.parametrize("raw", [-1e4, 1e4])
def test_extreme_noise_scales_stay_finite(raw):
    logits, _, noise, valid = sample(1, 10, 4, seed=10)
    logits = logits.float().requires_grad_()
    scale = torch.full_like(logits, raw).requires_grad_()
    gating = noisy_top_k_gating(logits, scale, 2, None, valid_GS=valid, noise_GSE=noise.float())
    total = gating.losses["importance"].sum() + gating.losses["load"].sum() + gating.weight_GSK.square().sum()
    for gradient in torch.autograd.grad(total, (logits, scale)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("E", "k", "capacity", "message"),
    [
        (1, 1, None, "at least 2 experts"),
        (4, 5, None, "k=5 choices"),
        (4, 0, None, "k=0 gives"),
        (4, 2, 0, "capacity=0"),
    ],
)
def test_impossible_sizes_are_refused(E, k, capacity, message):
    zeros = torch.zeros(1, 3, E)
    with pytest.raises(ValueError, match=message):
        noisy_top_k_gating(zeros, zeros, k, capacity, valid_GS=torch.ones(1, 3, dtype=torch.bool))
