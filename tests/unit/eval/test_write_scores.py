from collections.abc import Callable
from pathlib import Path

import pytest

from eval.metrics import score_corpus
from eval.run_record import load_translations
from eval.scores import load_scores, load_significance
from eval.scoring import write_scores

MakeRun = Callable[..., Path]


def test_both_files_hold_every_pair_system_and_metric(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en", "en-zh-Hans"])
    write_scores(run_dir, n_resamples=40)
    scores = load_scores(run_dir / "scores.csv")
    assert [(row.pair, row.system, row.metric) for row in scores[:4]] == [
        ("de-en", "bilingual", "bleu"),
        ("de-en", "bilingual", "chrf++"),
        ("de-en", "moe", "bleu"),
        ("de-en", "moe", "chrf++"),
    ]
    assert len(scores) == 8
    assert {("tok:zh" in row.signature) for row in scores if row.pair == "en-zh-Hans" and row.metric == "bleu"} == {
        True
    }
    lines = load_translations(run_dir, "moe", "de-en")
    alone = score_corpus([x.hypothesis for x in lines], [x.reference for x in lines], "en", "bleu")
    assert scores[2].score == pytest.approx(alone.score, abs=5e-5)  # the file keeps four decimals
    gains = load_significance(run_dir / "significance.csv")
    assert [(row.pair, row.metric) for row in gains][:2] == [("de-en", "bleu"), ("de-en", "chrf++")]
    assert gains[0].delta == pytest.approx(scores[2].score - scores[0].score, abs=2e-4)
    assert gains[0].verdict == 1  # a fifth of the words lost against two fifths


def test_a_run_without_baselines_is_scored_without_comparison(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en"], damage={"moe": 0.2})
    write_scores(run_dir, n_resamples=10)
    assert {row.system for row in load_scores(run_dir / "scores.csv")} == {"moe"}
    assert load_significance(run_dir / "significance.csv") == []


def test_different_references_are_refused(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en"])
    path = run_dir / "translations" / "bilingual" / "de-en.jsonl"
    lines = path.read_text().split("\n")
    path.write_text("\n".join(lines[:3] + lines[4:]))
    with pytest.raises(ValueError, match="moe has 30 references, bilingual has 29"):
        write_scores(run_dir, n_resamples=10)
    lines[3] = '{"source": "a", "hypothesis": "b", "reference": "another one"}'
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="different references from line 4 on"):
        write_scores(run_dir, n_resamples=10)


def test_missing_and_empty_translations_are_refused(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en"])
    path = run_dir / "translations" / "moe" / "de-en.jsonl"
    path.write_text("")
    with pytest.raises(ValueError, match=r"moe/de-en\.jsonl is empty"):
        write_scores(run_dir, n_resamples=10)
    path.unlink()
    with pytest.raises(ValueError, match=r"de-en\.jsonl does not exist"):
        write_scores(run_dir, n_resamples=10)
