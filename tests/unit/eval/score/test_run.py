import csv

import pytest

from eval.records.run_record import load_translations
from eval.records.scores import load_scores, load_significance
from eval.score.metrics import scorer_for
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun


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
    scorer = scorer_for("bleu", "en", references=[[line.reference for line in lines]])
    alone = scorer.corpus_score([line.hypothesis for line in lines], None)
    assert scores[2].score == pytest.approx(alone.score, abs=5e-5)  # the file keeps four decimals
    gains = load_significance(run_dir / "significance.csv")
    assert [(row.pair, row.metric) for row in gains][:2] == [("de-en", "bleu"), ("de-en", "chrf++")]
    assert gains[0].delta == pytest.approx(scores[2].score - scores[0].score, abs=2e-4)
    assert gains[0].verdict == 1  # a fifth of the words lost against two fifths


def test_a_run_is_scored_by_the_metrics_asked_for_and_averaged_by_resource(make_run: MakeRun) -> None:
    pairs = ["de-en", "fr-en", "es-en", "ru-en", "tr-en", "eu-en", "km-en"]  # from most training pairs to fewest
    run_dir = make_run(pairs, num_lines=8)
    write_scores(run_dir, metrics=["bleu", "ter"], n_resamples=10)
    scores = {(row.pair, row.system, row.metric): row.score for row in load_scores(run_dir / "scores.csv")}
    assert {metric for _, _, metric in scores} == {"bleu", "ter"}
    with (run_dir / "macro.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["resource"], row["num_pairs"]) for row in rows[::4]] == [
        ("high", "3"),
        ("medium", "2"),
        ("low", "2"),
        ("all", "7"),
    ]
    assert [(row["system"], row["metric"]) for row in rows[:4]] == [
        ("bilingual", "bleu"),
        ("bilingual", "ter"),
        ("moe", "bleu"),
        ("moe", "ter"),
    ]
    medium = rows[6]
    assert medium["pairs"] == "ru-en tr-en"
    assert (medium["train_pairs_min"], medium["train_pairs_max"]) == ("1200", "1500")
    mean = (scores["ru-en", "moe", "bleu"] + scores["tr-en", "moe", "bleu"]) / 2
    assert float(medium["score"]) == pytest.approx(mean, abs=1.01e-4)  # both files keep four decimals


def test_few_pairs_have_one_mean(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en", "fr-en", "es-en", "ru-en", "tr-en"], num_lines=3)
    write_scores(run_dir, metrics=["bleu"], n_resamples=10)
    lines = (run_dir / "macro.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ["resource", "all", "all"]


def test_a_score_that_says_little_is_warned_of(make_run: MakeRun, caplog: pytest.LogCaptureFixture) -> None:
    write_scores(make_run(["en-km", "fr-km"], num_lines=3), n_resamples=10)
    assert [r.message[:29] for r in caplog.records if r.levelname == "WARNING"] == ["warning: bleu of km: written "]


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
