"""Runs of combining marks. Normalisation took time in the square of their length: 14 minutes for 1 MiB."""

import time
import unicodedata

import pyarrow as pa
import pytest

from pipeline.corpus.cleaning.characters import MAX_MARKS, stream_safe
from pipeline.corpus.cleaning.codepoints import Texts

MARKS = "\u0301\u0316"  # above and below; normalisation sorts them


def texts(text: str) -> Texts:
    return Texts.normalized(pa.array([text], pa.string()))


@pytest.mark.parametrize(
    "text",
    [
        "a" + MARKS * 40_000,
        "a" + "\u0f73" * 50_000,  # it is no mark, but decomposes into two
        "a" + (MARKS * 15 + "\u00ad") * 2_500,  # folding removes soft hyphens
        "\u00b4\u00b8" * 40_000,  # folding turns these accents into marks
    ],
    ids=["marks", "compositions", "hyphens", "accents"],
)
def test_long_runs_take_linear_time(text: str) -> None:
    start = time.process_time()
    normalized = texts(text)
    assert normalized.folded.essences.size == 1
    assert time.process_time() - start < 2.0  # the square takes 5 s and more


def longest_run(text: str) -> int:
    longest = length = 0
    for char in unicodedata.normalize("NFD", text):
        length = length + 1 if unicodedata.combining(char) else 0
        longest = max(longest, length)
    return longest


def test_runs_are_bounded_and_nothing_is_lost() -> None:
    text = "a" + MARKS * 100 + "b"
    (normalized,) = texts(text).array.to_pylist()
    assert longest_run(normalized) == MAX_MARKS
    marks_left = unicodedata.normalize("NFD", normalized).replace("\u034f", "")
    assert sorted(marks_left) == sorted(text)
    assert texts(normalized).array.to_pylist() == [normalized]


@pytest.mark.parametrize("text", ["q" + MARKS * 15, "a\u0301" * 100, "क\u093c" * 60, "\u1112\u1161\u11ab" * 40])
def test_other_texts_do_not_change(text: str) -> None:
    assert stream_safe(text) == text
    assert texts(text).array.to_pylist() == [unicodedata.normalize("NFC", text)]


def test_the_mark_after_thirty_is_set_apart() -> None:
    thirty = "q" + MARKS * 15
    assert stream_safe(thirty + "\u0301\u0316" * 16) == f"{thirty}\u034f{thirty[1:]}\u034f{MARKS}"
