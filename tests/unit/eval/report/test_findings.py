from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from eval.records.results import RunResults, group_seeds
from eval.records.scores import BASELINE, SYSTEM
from eval.report.comparison import Difference
from eval.report.findings import (
    Intervals,
    MetricMeans,
    headline_of,
    left_open,
    mean_intervals,
    metric_means,
    without_verdict,
)
from eval.report.sections.cost import FlopsGroup, cost_groups
from eval.score.significance import percentile_interval
from tests.unit.eval.conftest import MakeRun, config_of
from tests.unit.eval.finished import finished
from tests.unit.eval.report.sections.score_pages import scored_run, section_of


def _groups(runs: Sequence[RunResults]) -> list[FlopsGroup]:
    empty = {run.label: [] for run in runs}
    return cost_groups(group_seeds(runs), empty, empty, ())


def _headline(runs: Sequence[RunResults], intervals: Intervals) -> str:
    return headline_of(_groups(runs), 6, intervals)


def test_the_headline_names_the_best_and_compares_at_equal_flops() -> None:
    dense, moe = finished("dense", bleu=8, bilingual=10), finished("moe", experts=8, bleu=9, bilingual=10)
    deep = finished("deep", experts=8, flops=9e6, bleu=7, bilingual=10)
    intervals = {("moe", BASELINE): (-0.94, -0.1), ("moe", "dense"): (0.2, 1.8), ("moe", "deep"): (1.0, 3.0)}
    assert _headline([dense, moe, deep], intervals) == (
        "moe has the highest mean BLEU of 3 systems over 6 language pairs, 9.5, 0.5 below the bilingual baselines "
        "[−0.9, −0.1]. Against the dense model of equal FLOPs: moe +1.0 [+0.2, +1.8]."
    )
    moe = finished("moe", experts=8, bleu=6)
    assert _headline([finished("dense", bleu=8), moe], {}) == (
        "dense has the highest mean BLEU of 2 systems over 6 language pairs, 8.5, "
        "without bilingual baselines to compare with. Against the dense model of equal FLOPs: moe −2.0."
    )
    some = headline_of(_groups([finished("dense", bleu=8), moe]), 6, {}, num_baselines=4)
    assert ", 8.5, with bilingual baselines of 4 of them. Against the dense model" in some
    mixtures = [finished("few", experts=8, bleu=9), finished("many", experts=32, bleu=9.5)]
    assert _headline(mixtures, {("many", "few"): (-0.2, 1.2)}).endswith(" many against few: +0.5 [−0.2, +1.2].")


def _means(metric: str, dense: float, moe: float, bilingual: float, intervals: Intervals) -> MetricMeans:
    scores = {("dense", SYSTEM): dense, ("moe", SYSTEM): moe, ("moe", BASELINE): bilingual}
    return MetricMeans(metric=metric, scores=scores, intervals=intervals)


@pytest.mark.parametrize(
    ("other_metrics", "best", "gain", "over_dense"),
    [
        ([], "", "", ""),
        (
            [_means("chrf++", 30, 31, 32, {("moe", BASELINE): (-1.5, -0.5), ("moe", "dense"): (0.3, 1.7)})],
            "",
            " (chrF++ agrees)",
            " (chrF++ agrees)",
        ),
        (  # not significant; another sign, and another system is the best
            [_means("chrf++", 31.2, 30.8, 31, {("moe", BASELINE): (-0.6, 0.2), ("moe", "dense"): (-0.7, -0.1)})],
            " (dense has the highest mean chrF++, 31.2 against 30.8)",
            " (but chrF++ −0.2 [−0.6, +0.2])",
            " (but chrF++ −0.4 [−0.7, −0.1])",
        ),
        (  # a lower TER is better
            [
                _means("chrf++", 30, 31, 32, {("moe", BASELINE): (-1.5, -0.5), ("moe", "dense"): (0.3, 1.7)}),
                _means("ter", 60, 61, 58, {("moe", BASELINE): (2.0, 4.0), ("moe", "dense"): (0.4, 1.6)}),
            ],
            " (dense has the lowest mean TER, 60.0 against 61.0)",
            " (chrF++ and TER agree)",
            " (chrF++ agrees, but TER, where lower is better, +1.0 [+0.4, +1.6])",
        ),
        (  # computed by a command: signs alone
            [_means("comet", 70, 69, 72, {})],
            " (dense has the highest mean COMET, 70.0 against 69.0)",
            " (COMET agrees)",
            " (but COMET −1.0)",
        ),
    ],
)
def test_the_headline_says_which_other_metrics_agree(
    other_metrics: list[MetricMeans], best: str, gain: str, over_dense: str
) -> None:
    groups = _groups([finished("dense", bleu=8, bilingual=10), finished("moe", experts=8, bleu=9, bilingual=10)])
    intervals = {("moe", BASELINE): (-0.94, -0.1), ("moe", "dense"): (0.2, 1.8)}
    assert headline_of(groups, 6, intervals, other_metrics) == (
        f"moe has the highest mean BLEU of 2 systems over 6 language pairs, 9.5{best}, 0.5 below the bilingual "
        f"baselines [−0.9, −0.1]{gain}. Against the dense model of equal FLOPs: moe +1.0 [+0.2, +1.8]{over_dense}."
    )


def test_a_metric_that_is_significant_where_bleu_is_not_disagrees() -> None:
    groups = _groups([finished("dense", bleu=8), finished("moe", experts=8, bleu=9)])
    bleu = {("moe", "dense"): (-0.2, 2.2)}
    chrf, comet = _means("chrf++", 30, 31, 32, {("moe", "dense"): (0.3, 1.7)}), _means("comet", 70, 71, 72, {})
    text = headline_of(groups, 6, bleu, [chrf, comet])  # without an interval, COMET can say nothing here
    assert text.endswith("moe +1.0 [−0.2, +2.2] (but chrF++ +1.0 [+0.3, +1.7]).")
    level = _means("chrf++", 30, 31, 32, {("moe", "dense"): (-0.3, 1.7)})
    assert headline_of(groups, 6, bleu, [level]).endswith("moe +1.0 [−0.2, +2.2] (chrF++ agrees).")
    assert "chrF++" not in headline_of(groups, 6, {}, [chrf])  # without a verdict there is nothing to agree with


def test_one_system_is_not_called_the_highest() -> None:
    seeds = [finished(f"dense_s{seed}", seed=seed, bleu=8, bilingual=10) for seed in (1, 2)]
    assert _headline(seeds, {}).startswith("dense has over 6 language pairs a mean BLEU of 8.5, 1.5 below")


@pytest.mark.parametrize(
    ("seeds", "sentences"),
    [
        (
            (1, 1),
            "The test sets do not tell moe apart from dense. "
            "Each system has one seed: another one may change the order.",
        ),
        (
            (2, 1),
            "The test sets do not tell moe apart from dense. dense has one seed, so intervals leave out what "
            "another one would change.",
        ),
        ((2, 2), "The test sets and seeds do not tell moe apart from dense."),
    ],
)
def test_what_cannot_be_concluded_is_said(seeds: tuple[int, int], sentences: str) -> None:
    runs = [
        finished(f"{label}_s{seed}" if count > 1 else label, seed=seed, experts=experts, bleu=bleu)
        for (label, experts, bleu), count in zip((("moe", 8, 9), ("dense", 0, 8)), seeds, strict=True)
        for seed in range(1, count + 1)
    ]
    groups = _groups(runs)
    assert left_open(groups, {("moe", "dense"): (-0.1, 2.0)}, [], {}) == sentences
    assert "apart" not in left_open(groups, {("moe", "dense"): (0.1, 2.0)}, [], {})
    budget, decoding = (Difference(aspect=aspect, consequence="", values=[]) for aspect in ("budget", "decoding"))
    assert left_open(groups, {}, [budget, decoding], {}).endswith(
        "The systems differ in budget and decoding too, so a difference has more than one cause."
    )
    few_lines = {"de-en": "under 100 test lines", "fr-en": "all below BLEU 1", "es-en": "under 100 test lines"}
    assert left_open(groups, {}, [], few_lines).endswith(
        "There is no verdict on de-en and es-en (under 100 test lines), which the means count too. "
        "There is no verdict on fr-en (all below BLEU 1), which the means count too."
    )


def test_means_without_a_verdict_have_no_interval(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [
        scored_run(make_run, name, {"moe": damage}, ["de-en"], 30, config=config_of(experts))
        for name, damage, experts in (("dense", 0.3, 0), ("moe", 0.1, 8))
    ]
    tables = section_of(tmp_path, runs)["tables"]
    assert without_verdict(tables) == {"de-en": "under 100 test lines"}
    assert mean_intervals(tables, "dense") == {}


def test_intervals_of_means_are_those_of_all_pairs_resampled_together(make_run: MakeRun, tmp_path: Path) -> None:
    pairs = ["de-en", "fr-en"]
    runs = [
        scored_run(make_run, "dense", {"moe": 0.3, "bilingual": 0.4}, pairs, 100, config=config_of(0)),
        scored_run(make_run, "moe_a", {"moe": 0.1, "bilingual": 0.4}, pairs, 100, config=config_of(8)),
        scored_run(make_run, "moe_b", {"moe": 0.2}, pairs, 100, config=config_of(4)),
    ]
    tables = section_of(tmp_path, runs)["tables"]
    intervals = mean_intervals(tables, "dense")
    names = ["dense", "moe_a", "moe_b"]
    assert set(intervals) == {(a, b) for a in names for b in names if a != b} | {(a, BASELINE) for a in names[:2]}
    first, second = (np.mean([table.joint_against[pair] for pair in pairs], axis=0) for table in tables[1:])
    assert intervals["moe_a", "moe_b"] == pytest.approx(percentile_interval(first - second))
    assert intervals["moe_a", "dense"] == pytest.approx(tables[1].mean_against_interval(pairs))
    assert intervals["dense", "moe_a"] == pytest.approx([-bound for bound in reversed(intervals["moe_a", "dense"])])
    assert intervals["moe_a", BASELINE] == pytest.approx(tables[1].mean_gain_interval(pairs))


def test_other_metrics_are_resampled_like_bleu(make_run: MakeRun, tmp_path: Path) -> None:
    pairs = ["de-en", "fr-en"]
    runs = [
        scored_run(make_run, "dense", {"moe": 0.3, "bilingual": 0.4}, pairs, 100, config=config_of(0)),
        scored_run(make_run, "moe", {"moe": 0.1, "bilingual": 0.4}, pairs, 100, config=config_of(8)),
    ]
    tables = section_of(tmp_path, runs)["tables"]
    (chrf,) = metric_means(tables, "dense")
    assert chrf.metric == "chrf"
    assert set(chrf.intervals) == set(mean_intervals(tables, "dense"))
    assert chrf.intervals != mean_intervals(tables, "dense")
    for other in ("dense", BASELINE):
        low, high = chrf.intervals["moe", other]
        delta = chrf.difference("moe", other)
        assert delta is not None
        assert 0 < low < delta < high
    assert chrf.difference("moe", BASELINE) == pytest.approx(tables[1].mean_gain(pairs, "chrf"), abs=1e-3)
    assert chrf.difference("moe", "nobody") is None
