"""Modifiers change what they name and nothing else, by the generator alone, and say where they do not apply."""

from random import Random

import pytest

from pipeline.corpus.languages import LangPair
from pipeline.corpus.modifiers import ALONE, MODIFIERS, merged

DE_EN = LangPair("de", "en")
SOURCE, TARGET = "Die Straße in Hannover ist gesperrt.", "The street in Hannover is closed."


def change(kind, source=SOURCE, target=TARGET, pair=DE_EN, seed=1):
    return MODIFIERS[kind](source, target, pair, Random(seed))


@pytest.mark.parametrize("kind", MODIFIERS)
def test_a_change_is_a_function_of_the_generator(kind):
    results = [change(kind, seed=seed) for seed in range(8)]
    assert results == [change(kind, seed=seed) for seed in range(8)]
    assert None not in results
    assert all(source != SOURCE and source and target for source, target in results)
    draws = len(set(results))
    assert draws == 1 if kind in ("upper", "title", "full_stop", "word") else draws > 1


def test_case():
    assert change("upper") == ("DIE STRASSE IN HANNOVER IST GESPERRT.", "THE STREET IN HANNOVER IS CLOSED.")
    assert change("title", "it's „ein 3d-Bild“", "a (small) word")[0] == "It's „Ein 3d-Bild“"
    assert change("title", "it's „ein 3d-Bild“", "a (small) word")[1] == "A (Small) Word"
    for code in ("tr", "tur", "az", "crh-Latn"):
        assert change("upper", "bir ışık", "a light", LangPair(code, "en")) == ("BİR IŞIK", "A LIGHT")


@pytest.mark.parametrize(
    ("kind", "source", "pair"),
    [
        ("upper", "これは本です。", "ja-en"),
        ("upper", "NO MORE", "en-de"),
        ("upper", "სახლი დიდია.", "ka-en"),
        ("title", "Das Haus", "de-en"),
        ("full_stop", "Wirklich?", "de-en"),
        ("full_stop", "Und dann...", "de-en"),
        ("typos", "これは本です。", "ja-en"),
        ("typos", "한국어 문장입니다.", "ko-en"),
        ("typos", "a b 12", "de-en"),
        ("word", "Das ist rot.", "de-en"),
        ("word", "Hannover", "de-en"),
    ],
)
def test_a_kind_that_does_not_apply_is_none(kind, source, pair):
    assert change(kind, source, TARGET, LangPair(*pair.split("-"))) is None


def test_a_full_stop_is_removed_only_from_both_sides():
    assert change("full_stop") == (SOURCE[:-1], TARGET[:-1])
    assert change("full_stop", SOURCE, "Really?") is None
    assert change("full_stop", "これは本です。", "यह किताब है।", LangPair("ja", "hi")) == ("これは本です", "यह किताब है")


def test_typos_keep_first_letters_marks_and_the_target():
    for seed in range(50):
        source, target = change("typos", seed=seed)
        assert target == TARGET
        assert abs(len(source) - len(SOURCE)) <= 1
        assert [word[0] for word in source.split()] == [word[0] for word in SOURCE.split()]
    hindi = "नमकस्कार"  # a letter before a mark does not change, nor does one beside it
    for seed in range(50):
        text, _ = change("typos", hindi, TARGET, LangPair("hi", "en"), seed)
        assert text.endswith("स्कार")
    long = " ".join(["wunderbare"] * 40)
    source, _ = change("typos", long)
    assert sum(word != "wunderbare" for word in source.split()) > 5


def test_a_word_is_one_that_both_sides_have():
    assert change("word") == ("Hannover", "Hannover")


@pytest.mark.parametrize("kind", ALONE)
def test_a_line_alone_is_the_same_on_both_sides(kind):
    source, target = change(kind, seed=5)
    assert source == target


def test_a_number_is_not_asked_of_a_language_with_digits_of_its_own():
    assert change("number", SOURCE, "صفحة ٣٤", LangPair("de", "ar")) is None
    assert change("number", SOURCE, "صفحة 34", LangPair("de", "ar"))[0].isdecimal()


@pytest.mark.parametrize(
    ("one", "joined"),
    [
        ("Das ist rot.", "Das ist rot. B"),
        ("これは本です。", "これは本です。B"),
        ("한국어다", "한국어다 B"),
        ("Bis bald 😀", "Bis bald 😀 B"),
    ],
)
def test_merged_lines_have_a_space_where_the_script_has_one(one, joined):
    assert merged((one, "a"), ("B", "b")) == (joined, "a b")
