"""Long texts are cut between sentences, else between words, else between characters."""

import pytest

from pipeline.decode.text.long_lines import joiner, split_text


def at_most(chars):
    return lambda text: len(text.strip()) <= chars


def test_a_text_that_fits_is_left_alone():
    assert split_text("  One. Two.  ", at_most(9)) == ["One. Two."]
    assert split_text(" \t ", at_most(0)) == []


def test_cuts_are_between_sentences_then_words_then_characters():
    assert split_text("One is here. Two (see 3.5). And three!", at_most(20)) == [
        "One is here.",
        "Two (see 3.5).",
        "And three!",
    ]
    assert split_text("one two three four", at_most(9)) == ["one two", "three four"[:5], "four"]
    assert split_text("abcdefgh", at_most(3)) == ["ab", "cd", "ef", "gh"]
    assert split_text("今日は晴れです。「明日は？」雨です。", at_most(9)) == [
        "今日は晴れです。",
        "「明日は？」",
        "雨です。",
    ]
    assert split_text("यह एक है। यह दो है।", at_most(10)) == ["यह एक है।", "यह दो है।"]


def test_a_mark_stays_with_its_letter():
    text = "e\u0301" * 4
    assert split_text(text, at_most(3)) == ["e\u0301"] * 4
    assert split_text("👩\u200d👩\u200d👧👩", at_most(5)) == ["👩\u200d👩\u200d👧", "👩"]


@pytest.mark.parametrize("text", ["a" * 999, "x " * 400, "\u0301" * 300, "Satz. " * 300, "。" * 77, "a\u200d" * 50])
def test_nothing_is_lost_and_every_part_fits(text):
    parts = split_text(text, at_most(7))
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part) <= 7 for part in parts)


def test_one_character_is_a_part_even_if_it_does_not_fit():
    assert split_text("abc", lambda text: False) == ["a", "b", "c"]


def test_sentences_are_joined_as_their_language_does():
    assert [joiner(code) for code in ("en", "de", "ko", "th", "tr")] == [" "] * 5
    assert [joiner(code) for code in ("ja", "zh-Hans", "zh-Hant", "yue")] == [""] * 4
