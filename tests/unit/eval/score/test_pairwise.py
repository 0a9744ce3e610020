from pathlib import Path

import pytest

from eval.score.pairwise import holm, pair_differences, save_comparison, tally
from eval.score.significance import Comparison


def _comparison(delta: float, half: float, p_value: float) -> Comparison:
    return Comparison(
        delta=delta, ci_low=delta - half, ci_high=delta + half, p_value=p_value, n_resamples=1000, seed=12345
    )


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        # By hand: 4 * 0.005 = 0.02, 3 * 0.01 = 0.03, 2 * 0.03 = 0.06; 1 * 0.04 may not fall below 0.06.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.5, 0.4, 0.01], [0.8, 0.8, 0.03]),
        ([0.9, 0.8], [1.0, 1.0]),
        ([0.02], [0.02]),
        ([], []),
    ],
)
def test_holm_is_that_of_a_hand_computation(p_values: list[float], expected: list[float]) -> None:
    corrected = holm({str(place): p_value for place, p_value in enumerate(p_values)})
    assert [corrected[str(place)] for place in range(len(p_values))] == pytest.approx(expected)


def test_wins_are_counted_by_the_interval_and_after_the_correction() -> None:
    comparisons = {
        "aa-en": _comparison(3.0, 1.0, 0.001),  # 5 * 0.001 = 0.005
        "bb-en": _comparison(1.5, 1.0, 0.02),  # 3 * 0.02 = 0.06: a win by the interval alone
        "cc-en": _comparison(0.2, 1.0, 0.4),
        "dd-en": _comparison(-2.0, 1.0, 0.01),  # 4 * 0.01 = 0.04
        "ee-en": _comparison(0.3, 0.5, 0.3),
    }
    rows = pair_differences("moe_8e", "dense", comparisons)
    assert [row.p_holm for row in rows] == pytest.approx([0.005, 0.06, 0.6, 0.04, 0.6])
    counts = tally(rows)
    assert (counts.system, counts.against, counts.num_pairs) == ("moe_8e", "dense", 5)
    assert counts.delta == pytest.approx(0.6)
    assert (counts.better, counts.level, counts.worse) == (2, 2, 1)
    assert (counts.corrected_better, counts.corrected_level, counts.corrected_worse) == (1, 3, 1)


def test_a_pair_without_a_verdict_is_in_no_count() -> None:
    comparisons = {"aa-en": _comparison(3.0, 1.0, 0.001), "bb-en": _comparison(-3.0, 1.0, 0.001)}
    rows = pair_differences("moe", "dense", comparisons, {"aa-en": "", "bb-en": "under 100 test lines"})
    assert [(row.verdict, row.corrected_verdict) for row in rows] == [(1, 1), (None, None)]
    counts = tally(rows)
    assert (counts.num_pairs, counts.unjudged) == (2, 1)
    assert (counts.better, counts.level, counts.worse, counts.corrected_worse) == (1, 0, 0, 0)


def test_a_lower_ter_is_a_win() -> None:
    comparisons = {"aa-en": _comparison(-3.0, 1.0, 0.001), "bb-en": _comparison(3.0, 1.0, 0.001)}
    rows = pair_differences("moe", "dense", comparisons, metric="ter")
    assert [(row.verdict, row.corrected_verdict) for row in rows] == [(1, 1), (-1, -1)]
    assert tally(rows).metric == "ter"


def test_the_file_has_one_row_a_pair(tmp_path: Path) -> None:
    rows = pair_differences("moe_8e", "dense", {"de-en": _comparison(1.25, 0.5, 0.0311), "tr-en": _comparison(0, 0, 1)})
    save_comparison(tmp_path / "comparison.csv", rows)
    assert (tmp_path / "comparison.csv").read_text(encoding="utf-8").splitlines() == [
        "pair,system,against,delta,ci_low,ci_high,p,p_holm",
        "de-en,moe_8e,dense,1.2500,0.7500,1.7500,0.031100,0.062200",
        "tr-en,moe_8e,dense,0.0000,0.0000,0.0000,1.000000,1.000000",
    ]
