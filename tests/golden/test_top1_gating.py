"""Top-1 gating equals section 2.2 of Switch Transformer (arXiv:2101.03961), as a loop in float64 and by hand."""

import pytest
import torch

from pipeline.model.moe.gates.token_choice import top1_gating


def switch(gates, capacity, valid):
    """Apply equations 1 to 6 to one group. Returns combine weights [S][E][C] and N · sum f · P (loss without alpha)."""
    S, E = len(gates), len(gates[0])
    combine = [[[0.0] * capacity for _ in range(E)] for _ in range(S)]
    real = [s for s in range(S) if valid[s]]
    counts = [0] * E
    for s in real:
        expert = max(range(E), key=lambda e: (gates[s][e], -e))
        if counts[expert] < capacity:
            combine[s][expert][counts[expert]] = gates[s][expert]
        counts[expert] += 1
    num = max(len(real), 1)
    fraction = [counts[e] / num for e in range(E)]
    probability = [sum(gates[s][e] for s in real) / num for e in range(E)]
    return combine, E * sum(f * p for f, p in zip(fraction, probability, strict=True))


@pytest.mark.parametrize(("G", "S", "E", "capacity"), [(1, 1, 2, 1), (3, 40, 4, 12), (2, 64, 8, 16), (2, 50, 5, 4)])
def test_equals_the_loop_of_the_paper(G, S, E, capacity):
    source = torch.Generator().manual_seed(S * E + capacity)
    logits = torch.randn(G, S, E, generator=source, dtype=torch.float64) * 2
    valid = torch.rand(G, S, generator=source) > 0.2
    gating = top1_gating(logits, capacity, valid_GS=valid)
    for g in range(G):
        combine, loss = switch(logits[g].softmax(-1).tolist(), capacity, valid[g].tolist())
        torch.testing.assert_close(gating.dense()[g], torch.tensor(combine, dtype=torch.float64))
        assert float(gating.losses["balance"][g]) * E**2 == pytest.approx(loss, rel=1e-12)


def logits_of(*rows):
    """Return logits whose softmax is the rows."""
    return torch.tensor([rows], dtype=torch.float64).log()


def test_capacity_overflow_padding_and_loss_by_hand():
    """Five tokens have two experts and capacity 1. The third is padding. Choices: e0, e0 (over), e1, e0 (over)."""
    logits = logits_of([0.7, 0.3], [0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.8, 0.2])
    valid = torch.tensor([[True, True, False, True, True]])
    gating = top1_gating(logits, 1, valid_GS=valid)
    expected = torch.zeros(1, 5, 2, 1, dtype=torch.float64)
    expected[0, 0, 0, 0], expected[0, 3, 1, 0] = 0.7, 0.6  # the gates themselves, not 1
    torch.testing.assert_close(gating.dense(), expected)
    assert int(gating.unserved) == 2
    # N · sum f · P = 2 · (3/4 · 0.7 + 1/4 · 0.3), with dropped choices, too; P_0 = (0.7 + 0.9 + 0.4 + 0.8) / 4
    assert float(gating.losses["balance"]) * 4 == pytest.approx(2 * (0.75 * 0.7 + 0.25 * 0.3), rel=1e-12)


def test_uniform_router_gives_a_loss_of_one_and_ties_go_to_the_lower_index():
    gating = top1_gating(torch.zeros(2, 8, 4), 8, valid_GS=torch.ones(2, 8, dtype=torch.bool))
    assert (gating.losses["balance"] * 16).tolist() == [1.0, 1.0]
    assert gating.expert_GSK.tolist() == [[[0]] * 8] * 2


def test_task_and_loss_both_reach_the_router():
    logits = torch.randn(1, 20, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    valid = torch.ones(1, 20, dtype=torch.bool)

    def outputs(logits):
        gating = top1_gating(logits, 3, valid_GS=valid)
        return gating.weight_GSK, gating.losses["balance"]

    assert torch.autograd.gradcheck(outputs, logits)
    for value in outputs(logits):
        (gradient,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
        assert float(gradient.abs().sum()) > 0


@pytest.mark.parametrize(("E", "capacity", "message"), [(1, 2, "at least 2 experts"), (4, 0, "capacity=0 would drop")])
def test_impossible_sizes_are_refused(E, capacity, message):
    with pytest.raises(ValueError, match=message):
        top1_gating(torch.zeros(1, 3, E), capacity, valid_GS=torch.ones(1, 3, dtype=torch.bool))
