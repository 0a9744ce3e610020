import dataclasses

import pytest

from eval.records.scores import ScoreRow, SignificanceRow
from eval.report.summary import PairSummary, headline


def _summary(bleu: float, delta: float, half: float = 0.5) -> PairSummary:
    row = ScoreRow(
        pair="x",
        system="moe",
        train_pairs=9,
        metric="bleu",
        score=bleu,
        ci_low=0,
        ci_high=99,
        n_test=3,
        signature="",
    )
    gain = SignificanceRow(
        pair="x",
        metric="bleu",
        delta=delta,
        ci_low=delta - half,
        ci_high=delta + half,
        p_value=0.1,
        n_resamples=9,
        seed=1,
    )
    return PairSummary(pair="x", train_pairs=9, n_test=3, scores={("moe", "bleu"): row}, gains={"bleu": gain})


@pytest.mark.parametrize(
    ("summaries", "expected"),
    [
        (
            [_summary(10, 2), _summary(20, -1), _summary(30, 0.2)],
            "Mean BLEU 20.0 over 3 language pairs, on average 0.4 above the bilingual baselines: "
            "1 of 3 significantly better, 1 significantly worse.",
        ),
        (
            [_summary(10, -2), _summary(20, -1)],
            "Mean BLEU 15.0 over 2 language pairs, on average 1.5 below the bilingual baselines: "
            "0 of 2 significantly better, 2 significantly worse.",
        ),
        ([_summary(7, -0.3)], "BLEU 7.0, 0.3 below the bilingual baseline: not a significant difference."),
        ([_summary(7, 0.04)], "BLEU 7.0, level with the bilingual baseline: not a significant difference."),
        (
            [dataclasses.replace(_summary(7, 1), gains={})],
            "BLEU 7.0, without bilingual baselines to compare with.",
        ),
    ],
)
def test_headline_says_what_happened(summaries: list[PairSummary], expected: str) -> None:
    assert headline(summaries) == expected
