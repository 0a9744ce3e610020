"""Conclusions from GShard's Table 3 (arXiv:2006.16668) about its devices, by FLOPs alone.

docs/scaling.md has them under "What can no roofline predict?". Batches are source tokens, with as many target tokens.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.model.flops import TRAINING_FACTOR, forward_flops
from tests.golden.gshard import MEASURED, Published, config, fitted, left_out, model, published

PEAK = 61.5e12  # FLOP/s of a core of TPU v3 in bfloat16


def at_peak(row: Published) -> float:
    """Return the seconds that the matmul FLOPs of a step take at peak.

    Attention between tokens is left out, which is at most 4 % more in rows of 256.
    """
    forward = forward_flops(model(row.experts, row.layers), config().vocab.target_size)
    return TRAINING_FACTOR * (forward.source_token + forward.target_token) * row.tokens / PEAK


def beyond(experts: int, layers: int) -> float:
    """Return the milliseconds of a step and layer that are not FLOPs at peak."""
    row = MEASURED[experts, layers]
    return 1000 * (row.seconds - at_peak(row)) / layers


@pytest.mark.parametrize("row", MEASURED.values(), ids=lambda row: row.recipe)
def test_table_3_agrees_with_itself(row: Published) -> None:
    """Steps a second, batch and core years of a row agree to the two digits that are printed."""
    assert row.seconds * row.core_years_a_second == pytest.approx(row.core_years, rel=0.025)


@pytest.mark.parametrize(
    ("experts", "layers", "percent"),
    [(128, 12, 80), (128, 36, 71), (512, 12, 31), (512, 36, 28), (2048, 12, 20), (2048, 36, 20)],
)
def test_implied_utilisation(experts: int, layers: int, percent: int) -> None:
    row = MEASURED[experts, layers]
    assert round(100 * at_peak(row) / row.seconds) == percent


def test_the_dense_model_used_4_percent_of_its_cores() -> None:
    """T(96L) takes 300k steps of 4M tokens, 235.5 core years, as a pipeline of layers. MoE(2048E, 36L) takes 22.4."""
    dense, moe = next(row for row in published() if not row.experts), MEASURED[2048, 36]
    years = [at_peak(row) * row.core_years_a_second for row in (dense, moe)]
    used = [years[0] / dense.core_years, years[1] / moe.core_years]
    assert used[0] == pytest.approx(0.037, abs=0.002)
    assert (years[0] / years[1], used[1] / used[0]) == pytest.approx((1.9, 5.6), abs=0.05)


@pytest.mark.parametrize(("layers", "a", "times"), [(12, 0.252, 1.76), (36, 0.772, 1.48)])
def test_no_time_a_token_fits_128_and_512_experts(layers: int, a: float, times: float) -> None:
    """With t = a + b · tokens of a core and one a, tokens would cost less than their FLOPs at peak."""
    few, many = MEASURED[512, layers], MEASURED[128, layers]
    b = (many.seconds - few.seconds) / (many.tokens - few.tokens)
    assert few.seconds - b * few.tokens == pytest.approx(a, abs=0.001)
    assert at_peak(many) / many.tokens / b == pytest.approx(times, abs=0.01)


@pytest.mark.parametrize(("experts", "milliseconds"), [(128, (7.7, 11.9)), (512, (17.6, 19.0)), (2048, (30.8, 31.0))])
def test_what_is_not_flops_grows_with_layers_and_experts(experts: int, milliseconds: tuple[float, float]) -> None:
    """With 512 and 2048 experts and equal tokens, a layer costs the same in 12 and 36 layers.

    So hardly any of that time belongs to the step as a whole. 4 times the experts cost 1.7 times as much.
    """
    assert (beyond(experts, 12), beyond(experts, 36)) == pytest.approx(milliseconds, abs=0.05)


def test_all_to_all_and_gate_are_most_of_what_grows_from_512_to_2048_experts() -> None:
    """Section 5.2 says: all-to-all takes 36 % at 2048 experts and is O(root of E), 3.75 times that of 128 experts.

    The gate takes 10 % at most and is O(E).
    """
    layer = 1000 * MEASURED[2048, 12].seconds / 12
    grown = 0.36 * layer * (1 - 3.75**-0.5) + 0.1 * layer * (1 - 1 / 4)
    assert grown == pytest.approx(9.7, abs=0.1)
    assert beyond(2048, 12) - beyond(512, 12) == pytest.approx(13.2, abs=0.1)


def test_the_shares_that_section_5_gives_do_not_fit_into_the_rows_of_128_experts() -> None:
    """Shares sum to more than 1: dense products at 85 % of peak, 16 % all-to-all, 28 % recomputation (36 layers)."""
    for layers, again, share in ((12, 0.0, 1.10), (36, 0.28, 1.28)):
        row = MEASURED[128, layers]
        assert at_peak(row) / row.seconds / 0.85 + 0.16 + again == pytest.approx(share, abs=0.01)


def core_years(power: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the features of c1 · FLOPs + c2 · layers · devices^power for a step, and the published values."""
    rows = list(MEASURED.values())
    features = np.array([[at_peak(row), row.layers * row.cores**power] for row in rows])
    scale = np.array([row.core_years_a_second for row in rows])
    return features * scale[:, None], np.array([row.core_years for row in rows])


def test_core_years_from_two_constants() -> None:
    """Each row is predicted from the other five, with a cost that grows with the root of the devices.

    That cost does not depend on tokens, as for an all-to-all that waits. FLOPs come out at 92 % of peak.
    """
    features, truth = core_years(0.5)
    c1, c2 = fitted(features, truth)
    assert (c1, 1000 * c2) == pytest.approx((1.085, 0.70), abs=0.005)
    errors = left_out(features, truth)
    assert errors == pytest.approx([0.066, 0.073, -0.117, -0.041, -0.075, 0.137], abs=0.002)
    assert np.abs(errors).mean() == pytest.approx(0.085, abs=0.001)


@pytest.mark.parametrize(("power", "largest"), [(0.0, 0.29), (1.0, 0.34)], ids=["constant", "linear in devices"])
def test_another_power_of_the_devices_is_worse(power: float, largest: float) -> None:
    assert np.abs(left_out(*core_years(power))).max() == pytest.approx(largest, abs=0.01)
