from eval.number_format import MISSING
from eval.report.sections.ledger import flops_unit, model_rows, total_rows


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


def test_a_model_that_its_budget_cut_off_has_a_mark() -> None:
    ledger = {"stopped": "budget", "steps": 50, "best_step": 50, "validate_every": 10, "patience": 4}
    rows = model_rows({"moe": [ledger], "bilingual": [ledger | {"stopped": "patience"}, {"stopped": "budget"}]})
    assert [cells[-1] for cells in rows] == ["budget †", "patience", "budget"]
