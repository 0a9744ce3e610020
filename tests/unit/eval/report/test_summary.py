from collections.abc import Mapping
from dataclasses import replace

import pytest

from eval.records.scores import ScoreRow, SignificanceRow
from eval.report.summary import PairSummary, headline, unfinished_sentence


def _summary(bleu: float, gains: Mapping[str, float], n_test: int = 300, *unfinished: str) -> PairSummary:
    """Return a pair whose differences have intervals of half a point on either side. gains: differences by metric."""
    rows = {
        (system, "bleu"): ScoreRow(
            pair="x",
            system=system,
            train_pairs=9,
            metric="bleu",
            score=score,
            ci_low=0,
            ci_high=99,
            n_test=n_test,
            signature="",
        )
        for system, score in (("moe", bleu), ("bilingual", bleu - gains["bleu"]))
    }
    differences = {
        metric: SignificanceRow(
            pair="x",
            metric=metric,
            delta=delta,
            ci_low=delta - 0.5,
            ci_high=delta + 0.5,
            p_value=0.1,
            n_resamples=9,
            seed=1,
        )
        for metric, delta in gains.items()
    }
    return PairSummary(
        pair="x", train_pairs=9, n_test=n_test, scores=rows, gains=differences, unfinished=frozenset(unfinished)
    )


THREE = [
    _summary(10, {"bleu": 2, "chrf++": -3}),
    _summary(20, {"bleu": -0.1, "chrf++": -1}),
    _summary(30, {"bleu": 0.2, "chrf++": 2}),
]
MEAN = "Mean BLEU 20.0 over 3 language pairs, on average 0.7 above the bilingual baselines: "


@pytest.mark.parametrize(
    ("summaries", "expected"),
    [
        (
            THREE,
            f"{MEAN}significantly better in 1 of 3 by BLEU, 1 of 3 by chrF++, significantly worse in 2 by chrF++.",
        ),
        (
            [_summary(10, {"bleu": -2}), _summary(20, {"bleu": -1})],
            "Mean BLEU 15.0 over 2 language pairs, on average 1.5 below the bilingual baselines: "
            "significantly better in 0 of 2 by BLEU, significantly worse in 2 by BLEU.",
        ),
        (
            [_summary(10, {"bleu": 2, "ter": -3}), _summary(20, {"bleu": 2, "ter": 3})],
            "Mean BLEU 15.0 over 2 language pairs, on average 2.0 above the bilingual baselines: "
            "significantly better in 2 of 2 by BLEU, 1 of 2 by TER, significantly worse in 1 by TER.",
        ),
        (
            [_summary(7, {"bleu": -0.3, "chrf++": -0.8})],
            "BLEU 7.0, 0.3 below the bilingual baseline: "
            "not significantly different by BLEU, significantly worse by chrF++.",
        ),
        (
            [_summary(7, {"bleu": 0.04})],
            "BLEU 7.0, level with the bilingual baseline: not significantly different by BLEU.",
        ),
        (
            [*THREE, replace(_summary(40, {"bleu": 9}), gains={})],
            "Mean BLEU 25.0 over 4 language pairs, on the 3 pairs with a bilingual baseline 0.7 above it: "
            "significantly better in 1 of 3 by BLEU, 1 of 3 by chrF++, significantly worse in 2 by chrF++.",
        ),
        (
            [_summary(7, {"bleu": 1}), replace(_summary(9, {"bleu": 9}), gains={})],
            "Mean BLEU 8.0 over 2 language pairs, on the one pair with a bilingual baseline 1.0 above it: "
            "significantly better by BLEU.",
        ),
        (
            [replace(_summary(7, {"bleu": 1}), gains={})],
            "BLEU 7.0, without bilingual baselines to compare with.",
        ),
    ],
)
def test_headline_counts_every_metric(summaries: list[PairSummary], expected: str) -> None:
    assert headline(summaries) == expected


def test_headline_says_which_models_their_budget_cut_off() -> None:
    cut_off = [replace(THREE[0], unfinished=frozenset({"bilingual", "moe"})), *THREE[1:]]
    ending = " 1 of 3 baselines and the multilingual model ended by budget while still improving."
    assert headline(cut_off) == headline(THREE) + ending
    assert headline([_summary(7, {"bleu": 1}, 300, "bilingual")]).endswith(
        "by BLEU. The baseline ended by budget while still improving."
    )
    alone = replace(_summary(7, {"bleu": 1}, 300, "moe"), gains={})
    assert headline([alone]).endswith("compare with. The model ended by budget while still improving.")


def test_several_models_that_their_budget_cut_off_are_a_list() -> None:
    three = {"a_1": True, "b_2": True, "c_3": True}
    assert unfinished_sentence([], three | {"d_4": False}).startswith(" a_1, b_2 and c_3 ended by budget")
    assert unfinished_sentence([True, False], three).startswith(" 1 of 2 baselines and all 3 runs ended by")
    assert unfinished_sentence([], three) == " All 3 runs ended by budget while still improving."
    assert unfinished_sentence([], dict.fromkeys(three, False)) == ""


def test_pairs_with_small_tests_or_broken_systems_are_not_counted() -> None:
    small, broken = _summary(10, {"bleu": 5}, 99), _summary(0.9, {"bleu": 0.8})
    assert headline([*THREE, small, broken]).endswith(
        "significantly better in 1 of 3 by BLEU, significantly worse in none, "
        "no verdict in 1 (under 100 test lines), 1 (all below BLEU 1)."
    )
    assert headline([small]).endswith("5.0 above the bilingual baseline: no verdict (under 100 test lines).")
    assert headline([small, small]).endswith("baselines: no verdict in 2 (under 100 test lines).")
