import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from eval.records.results import RunResults, group_seeds
from eval.records.run_record import LossPoint
from eval.report.sections.cost import bilingual_rows, cost_groups, save_sweep
from tests.unit.eval.finished import finished

LEVELS = (3.0, 2.0)


def _losses(runs: list[RunResults], last: float = 2.0) -> dict[str, list[LossPoint]]:
    points = [
        LossPoint(step=n, target_tokens=500 * n, cross_entropy=loss, pairs={}) for n, loss in ((1, 3.0), (2, last))
    ]
    return {run.label: points for run in runs}


def _table(tmp_path: Path, runs: list[RunResults]) -> list[dict[str, str]]:
    groups = cost_groups(group_seeds(runs), _losses(runs), _losses(runs), LEVELS)
    save_sweep(tmp_path / "sweep.csv", groups, bilingual_rows(runs), LEVELS)
    with (tmp_path / "sweep.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_systems_are_grouped_by_equal_flops_the_dense_first() -> None:
    runs = [
        finished("deep_moe", experts=9, flops=2.1e6),
        finished("moe", experts=8, flops=1.05e6),
        finished("dense", flops=1e6),
        finished("wide", experts=32, flops=1.2e6),
        finished("deep", flops=2e6),
        finished("unknown", flops=None),
    ]
    groups = cost_groups(group_seeds(runs), _losses(runs), _losses(runs), ())
    assert [[rows[0].id for rows in group.systems] for group in groups] == [
        ["dense", "moe"],
        ["wide"],
        ["deep", "deep_moe"],
        ["unknown"],
    ]
    ratios = [rows[0].numbers["flops_over_dense"] for group in groups for rows in group.systems]
    assert ratios == [1.0, pytest.approx(1.05), None, 1.0, pytest.approx(1.05), None]


def test_the_table_holds_every_run_the_means_of_seeds_and_the_baselines_once(tmp_path: Path) -> None:
    runs = [
        finished("moe_s1", experts=8, seed=1, bleu=12, bilingual=9),
        finished("moe_s2", experts=8, seed=2, bleu=10, bilingual=9, ledger={"train_seconds": 100.0}),
        finished("dense", bleu=8, bilingual=9),
    ]
    rows = _table(tmp_path, runs)
    assert [(row["id"], row["kind"], row["models"], row["seed"]) for row in rows] == [
        ("dense", "run", "1", "1"),
        ("moe", "mean", "2", ""),
        ("moe_s1", "run", "1", "1"),
        ("moe_s2", "run", "1", "2"),
        ("bilingual", "bilingual", "6", ""),
    ]
    dense, mean, first, second, bilingual = rows
    assert [row["steps_per_second"] for row in (first, second, mean)] == ["2.0000", "0.5000", "1.2500"]
    assert [row["batch_tokens"] for row in (first, bilingual)] == ["20", ""]
    assert [row["tokens_to_3.0"] for row in rows] == ["500", "500", "500", "500", ""]
    assert [mean[name] for name in ("experts", "layers", "gate")] == ["8", "6", "top2"]
    assert [dense[name] for name in ("experts", "layers", "gate")] == ["", "6", ""]
    # The smaller three of six pairs have a point more, so thirds of two pairs have 0, half a point and 1 more.
    means = [mean[name] for name in ("bleu", "bleu_high", "bleu_medium", "bleu_low")]
    assert means == ["11.5000", "11.0000", "11.5000", "12.0000"]
    gains = [dense[name] for name in ("delta_bleu", "delta_bleu_high", "delta_bleu_medium", "delta_bleu_low")]
    assert gains == ["-0.5000", "-1.0000", "-0.5000", "0.0000"]
    assert [bilingual[name] for name in ("parameters", "tokens", "device_hours", "bleu", "delta_bleu")] == [
        "24000000",
        "6000",
        "3.0000",
        "9.0000",
        "",
    ]


def test_the_lowest_validation_loss_is_a_column_and_has_a_mean_over_seeds() -> None:
    runs = [finished("moe_s1", experts=8, seed=1), finished("moe_s2", experts=8, seed=2)]
    validation = _losses(runs[:1], last=3.5) | _losses(runs[1:])
    ((mean, first, second),) = cost_groups(group_seeds(runs), _losses(runs), validation, ())[0].systems
    assert [row.numbers["validation"] for row in (first, second, mean)] == [3.0, 2.0, 2.5]


def test_the_balance_of_experts_is_that_of_the_development_sets(tmp_path: Path) -> None:
    """Two layers of two experts: 3 and 1 of 4 choices, with half the weight each; then an even one."""
    pairs = finished("moe").record.pairs
    layers = {"encoder.2": {"chosen": [3, 1], "weight": [1, 1]}, "decoder.2": {"chosen": [2, 2], "weight": [1, 1]}}
    content = {"layers": {name: {pair: {"tokens": 4, **use} for pair in pairs} for name, use in layers.items()}}
    (tmp_path / "routing.json").write_text(json.dumps(content))
    run = replace(finished("moe", experts=2), directory=tmp_path)
    uneven, even = _table(tmp_path, [run, finished("dense")])[1], _table(tmp_path, [finished("dense")])[0]
    assert [uneven[name] for name in ("load_max", "load_cv", "importance_cv")] == ["1.2500", "0.2500", "0.0000"]
    assert [even[name] for name in ("load_max", "load_cv", "importance_cv")] == ["", "", ""]


def test_a_level_that_one_seed_does_not_reach_has_no_mean() -> None:
    runs = [finished("moe_s1", experts=8, seed=1), finished("moe_s2", experts=8, seed=2)]
    losses = _losses(runs[:1]) | _losses(runs[1:], last=2.5)
    ((mean, first, second),) = cost_groups(group_seeds(runs), losses, losses, LEVELS)[0].systems
    assert [row.numbers["tokens_to_2.0"] for row in (mean, first, second)] == [None, 1000, None]
    assert mean.numbers["tokens_to_3.0"] == 500


def test_different_baselines_have_a_row_each() -> None:
    other = finished("other", bilingual=5, sizes={"tr-en": 100})
    runs = [finished("a", bilingual=5), finished("b", bilingual=5), other, finished("none")]
    assert [(row.id, row.num_models) for row in bilingual_rows(runs)] == [
        ("bilingual of a, b", 6),
        ("bilingual of other", 1),
    ]
    assert bilingual_rows(runs[3:]) == []
