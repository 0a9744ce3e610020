from pathlib import Path

import pytest

from eval.records.scores import (
    ScoreRow,
    SignificanceRow,
    load_scores,
    load_significance,
    save_scores,
    save_significance,
)


def _row(pair: str, system: str, train_pairs: int, metric: str = "bleu") -> ScoreRow:
    return ScoreRow(
        pair=pair,
        system=system,
        train_pairs=train_pairs,
        metric=metric,
        score=12.34,
        ci_low=11.0,
        ci_high=13.5,
        n_test=300,
        signature="nrefs:1|tok:13a",
    )


def test_scores_round_trip_sorted_with_fixed_decimals(tmp_path: Path) -> None:
    rows = [_row("tr-en", "moe", 5), _row("de-en", "moe", 90), _row("de-en", "bilingual", 90, "chrf++")]
    path = tmp_path / "scores.csv"
    save_scores(path, rows)
    assert path.read_text().splitlines()[:2] == [
        "pair,system,train_pairs,metric,score,ci_low,ci_high,n_test,signature",
        "de-en,bilingual,90,chrf++,12.3400,11.0000,13.5000,300,nrefs:1|tok:13a",
    ]
    assert load_scores(path) == [rows[2], rows[1], rows[0]]


def test_significance_round_trips(tmp_path: Path) -> None:
    row = SignificanceRow(
        pair="de-en",
        metric="bleu",
        delta=-0.5,
        ci_low=-1,
        ci_high=-0.25,
        p_value=0.000999,
        n_resamples=1000,
        seed=12345,
    )
    path = tmp_path / "significance.csv"
    save_significance(path, [row])
    assert path.read_text().splitlines()[0] == "pair,metric,delta,ci_low,ci_high,p_value,n_resamples,seed"
    assert load_significance(path) == [row]
    assert row.verdict == -1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pair,score\n", "has columns pair,score"),
        ("HEADER\nde-en,moe,many,bleu,1,1,1,1,s\n", "scores.csv:2 train_pairs='many' is not a whole number"),
        ("HEADER\nde-en,moe,1,bleu,x,1,1,1,s\n", "scores.csv:2 score='x' is not a number"),
        ("HEADER\nde-en,moe\n", "has 2 fields; expected 9"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "scores.csv"
    header = "pair,system,train_pairs,metric,score,ci_low,ci_high,n_test,signature"
    path.write_text(text.replace("HEADER", header))
    with pytest.raises(ValueError, match=message):
        load_scores(path)
    with pytest.raises(ValueError, match=r"significance\.csv does not exist"):
        load_significance(tmp_path / "significance.csv")
