"""`make evaluate` with the smoke run: further test sets, of several names, for its model and its bilingual models."""

import json
import re

import pytest

from eval.records.challenge import load_challenge
from eval.records.faults import load_faults, load_faulty_lines
from eval.records.scores import load_scores, load_significance
from tests.system.conftest import FURTHER_ROWS
from tests.system.place import run


def evaluate(place, *words, settings=()):
    command = ["make", "--no-print-directory", "evaluate", "NAME=smoke", *words]
    return run([*command, "ARGS=" + " ".join(["resamples=100", *place.directories, *settings])], timeout=300)


@pytest.fixture(scope="module")
def evaluated(place, results, tests_directory):
    process = evaluate(place, f"CORPUS={tests_directory}")
    assert process.returncode == 0, process.stderr
    return results / "tests"


def test_each_test_set_is_scored_for_every_system(place, results, tests_directory, evaluated):
    for name, pairs in (("news", {"de-en", "tr-en"}), ("talks", {"de-en"})):
        directory = results / "tests" / name
        scores = load_scores(directory / "scores.csv")
        assert {(row.pair, row.system) for row in scores} == {(pair, s) for pair in pairs for s in ("moe", "bilingual")}
        assert {row.n_test for row in scores} == {2}
        assert {row.pair for row in load_significance(directory / "significance.csv")} == pairs
        assert {row.pair for row in load_faults(directory)} == pairs
        assert {row.pair for row in load_faulty_lines(directory)} <= pairs
        overlap = json.loads((directory / "run.json").read_text(encoding="utf-8"))["overlap"]
        assert {pair: counts["lines"] for pair, counts in overlap.items()} == dict.fromkeys(pairs, 2)
    lines = (results / "tests" / "news" / "translations" / "moe" / "tr-en.jsonl").read_text(encoding="utf-8")
    translated = [json.loads(line) for line in lines.splitlines()]
    assert [(line["reference"], line["source"]) for line in translated] == FURTHER_ROWS["en-tr"]
    again = evaluate(place, f"CORPUS={tests_directory}", "LANG_PAIRS=de-en")
    assert again.returncode == 0, again.stderr
    assert "translate bilingual de-en: running" not in again.stderr
    assert re.search(r"^\d of 2 lines \(.* %\) share a sentence or a run of 8 words with", again.stdout, re.MULTILINE)


@pytest.fixture
def unknown_metric(results):
    """The run's record names a metric that this version does not know."""
    record = results / "run.json"
    text = record.read_text(encoding="utf-8")
    changed, number = re.subn(r'(?s)("score": \{[^}]*"metrics": )\[[^]]*\]', r'\1["of_tomorrow"]', text)
    assert number == 1
    record.write_text(changed, encoding="utf-8")
    yield
    record.write_text(text, encoding="utf-8")


def test_the_challenge_set_of_a_test_set(results, place, tests_directory, evaluated, unknown_metric):
    """Its losses are in chrF++, whatever metrics the run has."""
    process = evaluate(place, f"CORPUS={tests_directory}", "LANG_PAIRS=de-en", settings=["challenge=true"])
    assert process.returncode == 0, process.stderr
    assert "challenge-news\npair " in process.stdout
    losses = load_challenge(results / "tests" / "challenge-news")
    assert {row.n_test for row in losses if row.kind in ("upper", "full_stop", "typos", "url")} == {2}
    assert not (results / "tests" / "challenge-news" / "scores.csv").exists()


def test_a_corpus_without_the_pairs_says_what_it_has(place, results, tmp_path):
    (tmp_path / "test.fr-es.tsv").write_text("a\tb\n", encoding="utf-8")
    process = evaluate(place, f"CORPUS={tmp_path}")
    assert process.returncode == 2  # make's own
    assert "has no test set of de-en, tr-en; its test sets have es, fr" in process.stderr


def test_a_run_scores_further_test_sets_and_shows_them(place, results, tests_directory, evaluated):
    """Nothing is trained again, so that only the further test sets are translated."""
    words = ["LANG_PAIRS=de-en tr-en", f"score.test_sets=[own,{tests_directory},challenge]", "score.resamples=100"]
    process = run(place.command("name=further", *words[1:]) + words[:1], timeout=300)
    assert process.returncode == 0, process.stderr
    assert "train moe" not in process.stderr
    directory = results.parent / "further"
    for name, pairs in (("news", {"de-en", "tr-en"}), ("talks", {"de-en"})):
        scores = load_scores(directory / "test_sets" / name / "scores.csv")
        assert {(row.pair, row.system) for row in scores} == {(pair, s) for pair in pairs for s in ("moe", "bilingual")}
    scores = load_scores(directory / "test_sets" / "news" / "scores.csv")
    assert {*load_scores(evaluated / "news" / "scores.csv")} <= {*scores}  # which may be of one pair alone by now
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert "<h2>Further test sets</h2>" in page
    assert all(f"<h3>{name}</h3>" in page for name in ("news", "talks"))
    assert {path.name for path in directory.glob("translations-*")} == {
        "translations-news.html",
        "translations-talks.html",
    }
    assert "<h2>Challenge sets</h2>" in page
    losses = load_challenge(directory / "test_sets" / "challenge")
    assert {(row.pair, row.system, row.kind) for row in losses} >= {
        (pair, system, kind)
        for pair in ("de-en", "tr-en")
        for system in ("moe", "bilingual")
        for kind in ("upper", "typos", "number", "url", "emoji")
    }
    assert json.loads((directory / "run.json").read_text(encoding="utf-8"))["config"]["score"]["test_sets"][0] == "own"
    stray = run(place.command("name=stray", "score.test_sets=[own,nowhere]", "'pairs=[de-en]'"), timeout=120)
    assert "score.test_sets: nowhere: corpus=nowhere is neither a directory" in stray.stderr
