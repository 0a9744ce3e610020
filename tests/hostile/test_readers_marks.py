"""Runs of combining marks: normalisation took the square of their length, 5 s for 80 kB, 14 minutes for 1 MiB."""

import time
import unicodedata

import pyarrow as pa
import pytest

from pipeline.corpus.characters import MAX_MARKS, stream_safe
from pipeline.corpus.codepoints import Texts

MARKS = "\u0301\u0316"  # above and below: their order is what normalisation sorts


def texts(text: str) -> Texts:
    return Texts.normalized(pa.array([text], pa.string()))


@pytest.mark.parametrize(
    "text",
    [
        "a" + MARKS * 40_000,
        "a" + "\u0f73" * 50_000,  # no mark itself, but two of them when it is taken apart
        "a" + (MARKS * 15 + "\u00ad") * 2_500,  # soft hyphens, which comparison leaves out
        "\u00b4\u00b8" * 40_000,  # accents that stand alone, and are marks when they are compared
    ],
    ids=["marks", "compositions", "hyphens", "accents"],
)
def test_long_runs_take_no_square_of_their_length(text: str) -> None:
    start = time.process_time()
    found = texts(text)
    assert found.folded.essences.size == 1
    assert time.process_time() - start < 2.0  # the square takes 5 s and more


def longest_run(text: str) -> int:
    longest = length = 0
    for char in unicodedata.normalize("NFD", text):
        length = length + 1 if unicodedata.combining(char) else 0
        longest = max(longest, length)
    return longest


def test_runs_are_bounded_and_nothing_is_lost() -> None:
    text = "a" + MARKS * 100 + "b"
    (found,) = texts(text).array.to_pylist()
    assert longest_run(found) == MAX_MARKS
    left = unicodedata.normalize("NFD", found).replace("\u034f", "")
    assert sorted(left) == sorted(text)
    assert texts(found).array.to_pylist() == [found]


@pytest.mark.parametrize("text", ["q" + MARKS * 15, "a\u0301" * 100, "क\u093c" * 60, "\u1112\u1161\u11ab" * 40])
def test_other_texts_are_as_before(text: str) -> None:
    assert stream_safe(text) == text
    assert texts(text).array.to_pylist() == [unicodedata.normalize("NFC", text)]


def test_the_mark_after_thirty_is_set_apart() -> None:
    thirty = "q" + MARKS * 15
    assert stream_safe(thirty + "\u0301\u0316" * 16) == f"{thirty}\u034f{thirty[1:]}\u034f{MARKS}"
