"""`make evaluate` with the smoke run: further test sets, of several names, for its model and its bilingual models."""

import json

import pytest

from eval.records.scores import load_scores, load_significance
from tests.system.place import run

ROWS = {"de-en": [("Klicken Sie auf Datei.", "Click File."), ("Öffnen Sie das Dokument.", "Open the document.")]}
ROWS["en-tr"] = [("Click File.", "Dosya'yı tıklayın."), ("Open the document.", "Belgeyi açın.")]


@pytest.fixture(scope="module")
def tests_directory(tmp_path_factory):
    """Two test sets: news of both pairs, one of them the other way round; talks of one. There is no training text."""
    directory = tmp_path_factory.mktemp("more")
    for name in ("news.test.de-en", "news.test.en-tr", "talks.test.de-en"):
        rows = ROWS[name.rpartition(".")[2]]
        (directory / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return directory


def evaluate(place, *words):
    command = ["make", "--no-print-directory", "evaluate", "NAME=smoke", *words]
    return run([*command, "ARGS=" + " ".join(["resamples=100", *place.directories])], timeout=300)


def test_each_test_set_is_scored_for_every_system(place, results, tests_directory):
    process = evaluate(place, f"CORPUS={tests_directory}")
    assert process.returncode == 0, process.stderr
    for name, pairs in (("news", {"de-en", "tr-en"}), ("talks", {"de-en"})):
        directory = results / "tests" / name
        scores = load_scores(directory / "scores.csv")
        assert {(row.pair, row.system) for row in scores} == {(pair, s) for pair in pairs for s in ("moe", "bilingual")}
        assert {row.n_test for row in scores} == {2}
        assert {row.pair for row in load_significance(directory / "significance.csv")} == pairs
    lines = (results / "tests" / "news" / "translations" / "moe" / "tr-en.jsonl").read_text(encoding="utf-8")
    translated = [json.loads(line) for line in lines.splitlines()]
    assert [(line["reference"], line["source"]) for line in translated] == ROWS["en-tr"]
    again = evaluate(place, f"CORPUS={tests_directory}", "LANG_PAIRS=de-en")
    assert again.returncode == 0, again.stderr
    assert "translate bilingual de-en: running" not in again.stderr


def test_a_corpus_without_the_pairs_says_what_it_has(place, results, tmp_path):
    (tmp_path / "test.fr-es.tsv").write_text("a\tb\n", encoding="utf-8")
    process = evaluate(place, f"CORPUS={tmp_path}")
    assert process.returncode == 2  # make's own
    assert "has no test set of de-en, tr-en; its test sets have es, fr" in process.stderr
