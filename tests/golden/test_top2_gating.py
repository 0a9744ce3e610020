"""Top-2 gating equals Algorithm 1 of GShard (arXiv:2006.16668), as a loop over tokens in float64 and by hand."""

import math

import pytest
import torch

from pipeline.model.moe.gates.token_choice import top2_gating


def algorithm_1(gates, capacity, valid, rnd, *, count_dropped_second):
    """Apply the algorithm to one group of tokens. Returns combine weights [S][E][C] and the auxiliary loss.

    Lines 14-23 keep the second choice with probability 2·g2. By section 2.2 a dropped one takes no slot. Line 22 as
    printed counts it (`count_dropped_second`).
    """
    S, E = len(gates), len(gates[0])
    combine = [[[0.0] * capacity for _ in range(E)] for _ in range(S)]
    counts = [0] * E
    real = [s for s in range(S) if valid[s]]
    mean = [sum(gates[s][e] for s in real) / max(len(real), 1) for e in range(E)]

    def two_best(row):
        first = max(range(E), key=lambda e: (row[e], -e))
        second = max((e for e in range(E) if e != first), key=lambda e: (row[e], -e))
        return first, second, row[first], row[second]

    for s in real:
        e1, _, g1, g2 = two_best(gates[s])
        if counts[e1] < capacity:
            combine[s][e1][counts[e1]] = g1 / (g1 + g2)
        counts[e1] += 1
    aux = sum(counts[e] / max(len(real), 1) * mean[e] for e in range(E)) / E
    for s in real:
        _, e2, g1, g2 = two_best(gates[s])
        weight = g2 / (g1 + g2)
        drawn = rnd is None or 2 * weight > rnd[s]
        if drawn and counts[e2] < capacity:
            combine[s][e2][counts[e2]] = weight
        if drawn or count_dropped_second:
            counts[e2] += 1
    return combine, aux


@pytest.mark.parametrize("count_dropped_second", [False, True])
@pytest.mark.parametrize("with_draws", [False, True])
@pytest.mark.parametrize(("G", "S", "E", "capacity"), [(1, 1, 2, 1), (3, 40, 4, 20), (2, 64, 8, 16), (2, 50, 5, 7)])
def test_equals_the_loop_of_the_paper(G, S, E, capacity, with_draws, count_dropped_second):
    source = torch.Generator().manual_seed(S * E + capacity)
    logits = torch.randn(G, S, E, generator=source) * 2
    valid = torch.rand(G, S, generator=source) > 0.2
    rnd = torch.rand(G, S, generator=source) if with_draws else None
    gating = top2_gating(logits, capacity, valid_GS=valid, rnd_GS=rnd, count_dropped_second=count_dropped_second)
    gates = logits.softmax(-1).double()
    for g in range(G):
        draws = rnd[g].tolist() if rnd is not None else None
        combine, aux = algorithm_1(
            gates[g].tolist(), capacity, valid[g].tolist(), draws, count_dropped_second=count_dropped_second
        )
        torch.testing.assert_close(
            gating.dense()[g].double(), torch.tensor(combine, dtype=torch.float64), atol=1e-6, rtol=0
        )
        assert float(gating.losses["balance"][g]) == pytest.approx(aux, abs=1e-7)


def logits_of(*rows):
    """Return logits whose softmax is the rows."""
    return torch.tensor([rows], dtype=torch.float64).log().float()


def test_capacity_overflow_and_padding_by_hand():
    """Six tokens have three experts and capacity 2. The fourth token is padding.

    First choices of the real tokens in order: e0, e0, e0 (over capacity), e1, e0 (over capacity).
    Second choices: e1 (place 1 of e1, after its one first choice), e1 (over capacity), e2 (place 0), e2 (place 1), e1
    (over).
    """
    logits = logits_of(
        [0.6, 0.3, 0.1], [0.7, 0.2, 0.1], [0.5, 0.1, 0.4], [0.8, 0.1, 0.1], [0.1, 0.6, 0.3], [0.6, 0.3, 0.1]
    )
    valid = torch.tensor([[True, True, True, False, True, True]])
    gating = top2_gating(logits, 2, valid_GS=valid)
    expected = torch.zeros(1, 6, 3, 2)
    expected[0, 0, 0, 0], expected[0, 0, 1, 1] = 0.6 / 0.9, 0.3 / 0.9
    expected[0, 1, 0, 1] = 0.7 / 0.9  # its second expert is full: the weight stays below 1
    expected[0, 2, 2, 0] = 0.4 / 0.9  # its first expert is full: the second keeps its own share
    expected[0, 4, 1, 0], expected[0, 4, 2, 1] = 0.6 / 0.9, 0.3 / 0.9
    torch.testing.assert_close(gating.dense(), expected)
    assert int((valid & ~gating.kept_GSK[..., 0]).sum()) == 2
    # line 13: (1/3) · (4/5 · mean gate of e0 + 1/5 · mean gate of e1 + 0)
    mean_0, mean_1 = (0.6 + 0.7 + 0.5 + 0.1 + 0.6) / 5, (0.3 + 0.2 + 0.1 + 0.6 + 0.3) / 5
    assert float(gating.aux_loss) == pytest.approx((0.8 * mean_0 + 0.2 * mean_1) / 3, rel=1e-6)


def test_a_dropped_second_choice_takes_a_slot_only_as_line_22_is_printed():
    logits = logits_of([0.5, 0.3, 0.2], [0.5, 0.3, 0.2])
    valid = torch.ones(1, 2, dtype=torch.bool)
    rnd = torch.tensor([[0.99, 0.0]])  # 2·g2 = 0.75: the first is dropped, the second kept
    by_text = top2_gating(logits, 1, valid_GS=valid, rnd_GS=rnd)
    as_printed = top2_gating(logits, 1, valid_GS=valid, rnd_GS=rnd, count_dropped_second=True)
    assert by_text.kept_GSK[0, :, 1].tolist() == [False, True]
    assert as_printed.kept_GSK[0, :, 1].tolist() == [False, False]


def test_uniform_router_gives_one_over_e_squared_and_ties_go_to_the_lower_index():
    gating = top2_gating(torch.zeros(2, 8, 4), 8, valid_GS=torch.ones(2, 8, dtype=torch.bool))
    assert float(gating.aux_loss) == pytest.approx(1 / 16)
    assert gating.expert_GSK.tolist() == [[[0, 1]] * 8] * 2


def test_second_choice_is_kept_with_probability_twice_its_gate():
    num = 20000
    logits = logits_of([0.8, 0.2]).expand(1, num, 2)  # 2·g2 = 0.4
    rnd = torch.rand(1, num, generator=torch.Generator().manual_seed(1))
    gating = top2_gating(logits, num, valid_GS=torch.ones(1, num, dtype=torch.bool), rnd_GS=rnd)
    share = float(gating.kept_GSK[..., 1].float().mean())
    assert share == pytest.approx(0.4, abs=4 * math.sqrt(0.4 * 0.6 / num))  # four standard deviations


def test_empty_group_gives_zeros_and_no_share_of_the_mean():
    logits = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
    valid = torch.tensor([[True] * 5, [False] * 5])
    together, alone = top2_gating(logits, 3, valid_GS=valid), top2_gating(logits[:1], 3, valid_GS=valid[:1])
    assert together.dense()[1].abs().sum() == 0
    assert float(together.losses["balance"][1]) == 0
    assert float(together.aux_loss) == pytest.approx(float(alone.aux_loss))


def test_without_a_capacity_nothing_is_dropped():
    logits = torch.randn(2, 30, 4, generator=torch.Generator().manual_seed(3)) * 4
    valid = torch.ones(2, 30, dtype=torch.bool)
    gating = top2_gating(logits, None, valid_GS=valid)
    assert bool(gating.kept_GSK.all())
    torch.testing.assert_close(gating.dense().sum((2, 3)), torch.ones(2, 30))
    loads = torch.stack([torch.bincount(gating.expert_GSK[g].flatten(), minlength=4) for g in range(2)])
    assert gating.dense().shape[-1] == int(loads.max())


def test_gating_is_float32_for_lower_precision_logits():
    valid = torch.ones(1, 4, dtype=torch.bool)
    gating = top2_gating(torch.randn(1, 4, 4).bfloat16(), 4, valid_GS=valid)
    assert gating.weight_GSK.dtype == torch.float32
    assert gating.aux_loss.dtype == torch.float32


@pytest.mark.parametrize(("E", "capacity", "message"), [(1, 2, "at least 2 experts"), (4, 0, "capacity=0 would drop")])
def test_impossible_sizes_are_refused(E, capacity, message):
    with pytest.raises(ValueError, match=message):
        top2_gating(torch.zeros(1, 3, E), capacity, valid_GS=torch.ones(1, 3, dtype=torch.bool))
