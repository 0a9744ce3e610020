"""The sentence on lines of a further test set that share text with the training rows."""

import shutil
from dataclasses import replace

import pytest

from eval.records.results import load_results
from eval.report.page import write_report
from eval.report.sections.further_tests import overlap_text
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun
from tests.unit.eval.finished import finished
from tests.unit.eval.report.sections.test_further_tests import PAIRS, TRANSLATED, add_news
from tests.unit.eval.report.test_page import Page


def counts(lines: int, either: int) -> dict[str, int]:
    return {"lines": lines, "source": either, "reference": 0, "either": either}


@pytest.mark.parametrize(
    ("overlap", "sentence"),
    [
        ({}, "The training text was not compared with these lines."),
        (
            {"de-en": counts(30, 0), "de-fr": counts(30, 0)},
            "0 of 60 lines (0.0 %) share a sentence or a run of 8 words with the training text.",
        ),
        (
            {"de-en": counts(1000, 9), "en-fr": counts(1000, 10), "de-fr": counts(1000, 100)},
            "119 of 3,000 lines (4.0 %) share a sentence or a run of 8 words with the training text; "
            "most in de-fr 10.0 %, en-fr 1.0 %.",
        ),
        (
            {"de-en": counts(1000, 500)},
            "500 of 1,000 lines (50.0 %) share a sentence or a run of 8 words with the training text.",
        ),
    ],
)
def test_lines_of_the_training_text_are_counted(overlap: dict[str, dict[str, int]], sentence: str) -> None:
    record = finished("mine", sizes={"de-en": 1}).record
    assert overlap_text(replace(record, overlap=overlap)) == sentence


def test_the_page_says_it_of_each_run(make_run: MakeRun) -> None:
    run = make_run(PAIRS[:2])
    write_scores(run, n_resamples=20)
    overlap = {"de-en": counts(1000, 500)}
    add_news(make_run, "run", untrained=["de-fr"], translated=TRANSLATED, overlap=overlap)
    sentence = "500 of 1,000 lines (50.0 %) share a sentence or a run of 8 words with the training text."
    text = write_report(run, load_results([("mine", run)])).read_text(encoding="utf-8")
    section = text[text.index('<section id="further-tests">') : text.index('<section id="training">')]
    assert sentence in Page(section).text
    other = run.with_name("other")
    shutil.copytree(run, other)
    text = write_report(run, load_results([("one", run), ("two", other)])).read_text(encoding="utf-8")
    assert f"one: {sentence}" in text
    assert f"two: {sentence}" in text


def test_the_pairs_with_most_lines_of_the_training_text_are_named() -> None:
    record = finished("mine", sizes={"de-en": 1}).record
    overlap = {f"{code}-en": counts(100, share) for share, code in enumerate("abcdefgh", start=1)}
    assert overlap_text(replace(record, overlap=overlap)).endswith(
        "; most in h-en 8.0 %, g-en 7.0 %, f-en 6.0 %, e-en 5.0 %, d-en 4.0 %."
    )
