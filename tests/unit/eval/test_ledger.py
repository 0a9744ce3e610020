import pytest

from eval.ledger import flops_unit, model_rows, total_rows
from eval.number_format import MISSING, decimal, duration, p_value, percent, quantity, signed


def test_several_models_are_added_and_rates_weighted_by_time() -> None:
    systems = {
        "moe": [{"pair": None, "parameters": 3_210_000, "flops_per_token": 9e6, "tokens": 2e6}],
        "bilingual": [
            {"pair": "a-b", "parameters": 1e6, "mfu": 0.5, "train_seconds": 10, "flops_per_token": 1e6, "tokens": 1e6},
            {"pair": "c-d", "parameters": 2e6, "mfu": 0.8, "train_seconds": 30, "flops_per_token": 2e6, "tokens": 3e6},
        ],
    }
    rows = dict(total_rows(systems))
    assert rows["parameters"] == ["3.21 M", "3.00 M"]
    assert rows["training FLOPs in all"] == ["18.0 T", "7.00 T"]
    assert rows["model FLOP utilisation (MFU)"] == [MISSING, "72 %"]  # (5 + 24) / 40
    assert rows["training FLOPs per target token"] == ["9.00 M", "1.00 M to 2.00 M"]
    assert "device hours" not in rows
    assert [cells[0] for cells in model_rows(systems)] == ["moe", "bilingual a-b", "bilingual c-d"]


def test_a_sum_with_a_missing_part_is_missing() -> None:
    rows = dict(total_rows({"moe": [{"tokens": 5}], "bilingual": [{"tokens": 5}, {}]}))
    assert rows["target tokens seen"] == ["5", MISSING]


def test_the_unit_of_flops_is_the_one_recorded() -> None:
    assert flops_unit({"moe": [{"flops_unit": "FLOPs per source token"}]}) == "FLOPs per source token"
    assert flops_unit({}) == "training FLOPs per target token"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (signed(1.25), "+1.2"),
        (signed(-0.36), "−0.4"),
        (signed(-0.04), "0.0"),
        (decimal(-1234.5), "−1,234.5"),
        (percent(0.576), "58 %"),
        (quantity(999_600), "1.00 M"),
        (quantity(18.2e12), "18.2 T"),
        (duration(59.6), "1 min 00 s"),
        (duration(7384), "2 h 03 min"),
        (p_value(1 / 1001, 1000), "≤ 0.001"),
        (p_value(0.0416, 1000), "0.042"),
        (p_value(None, 1000), MISSING),
    ],
)
def test_numbers_are_written_for_readers(text: str, expected: str) -> None:
    assert text == expected
