from dataclasses import replace

from eval.records.scores import BASELINE, SYSTEM, SignificanceRow
from eval.report.score_table import text_table
from eval.report.summary import summarise
from tests.unit.eval.finished import finished


def summaries(**deltas: float):
    run = finished("demo", experts=8, bleu=12.34, bilingual=10.0, sizes={"de-en": 5985, "tr-en": 749})
    gains = {
        pair.replace("_", "-"): SignificanceRow(
            pair=pair.replace("_", "-"),
            metric="bleu",
            delta=delta,
            ci_low=delta - 1,
            ci_high=delta + 1,
            p_value=0.01,
            n_resamples=1000,
            seed=1,
        )
        for pair, delta in deltas.items()
    }
    return [replace(summary, gains={"bleu": gains[summary.pair]} if gains else {}) for summary in summarise(run)]


def test_each_pair_has_its_scores_and_whether_their_difference_is_significant() -> None:
    rows = [line.split() for line in text_table(summaries(de_en=2.34, tr_en=-3.0)).splitlines()]
    assert rows == [
        ["pair", "rows", "BLEU", "bilingual", "difference", "significant"],
        ["de-en", "5,985", "12.3", "10.0", "+2.3", "better"],
        ["tr-en", "749", "13.3", "10.0", "−3.0", "worse"],
    ]
    assert text_table(summaries(de_en=0.5, tr_en=-0.5)).count("  no") == 2
    assert max(map(len, text_table(summaries(de_en=2.34, tr_en=-3.0)).splitlines())) < 60


def test_a_pair_with_few_lines_gets_no_verdict() -> None:
    few = [replace(summary, n_test=99) for summary in summaries(de_en=2.34, tr_en=-3.0)]
    assert [line.split()[5:] for line in text_table(few).splitlines()[1:]] == [["no", "verdict"], ["no", "verdict"]]


def test_models_that_their_budget_cut_off_have_a_mark_and_a_legend() -> None:
    rich, poor = summaries(de_en=2.34, tr_en=-3.0)
    legend = "† ended by budget while still improving"
    lines = text_table([replace(rich, unfinished=frozenset({SYSTEM, BASELINE})), poor]).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["de-en", "5,985", "12.3", "†", "10.0", "†", "+2.3", "better"],
        ["tr-en", "749", "13.3", "10.0", "−3.0", "worse"],
    ]
    assert lines[3:] == [legend]
    assert [lines[1].index("12.3"), lines[1].index("10.0")] == [lines[2].index("13.3"), lines[2].index("10.0")]
    assert max(map(len, lines)) < 60
    baseline_alone = text_table([replace(poor, unfinished=frozenset({BASELINE}))]).splitlines()
    assert baseline_alone[1].split()[2:5] == ["13.3", "10.0", "†"]
    alone = text_table([replace(summary, unfinished=frozenset({SYSTEM})) for summary in summaries()]).splitlines()
    assert [line.split()[2:] for line in alone[1:3]] == [["12.3", "†"], ["13.3", "†"]]
    assert alone[3:] == [legend]
    assert "†" not in text_table([rich, poor])


def test_without_bilingual_models_a_pair_has_its_score_alone() -> None:
    assert [line.split() for line in text_table(summaries()).splitlines()] == [
        ["pair", "rows", "BLEU"],
        ["de-en", "5,985", "12.3"],
        ["tr-en", "749", "13.3"],
    ]
