"""Rules of the corpus freesoft38: which rows are kept, which are held out, and what may be trained on."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from data.freesoft38.build import splits
from data.freesoft38.build.download import HERE
from data.freesoft38.build.rows import Row, is_clean, keep_clean
from data.freesoft38.build.text import align_sentences, clean, count_words, split_sentences, word_runs

WORDS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=25).map(" ".join)


def row(foreign: str, english: str, source: str = "man", document: str = "man:man1/x.1.gz") -> Row:
    """Return a row of a source that has no held-out pages."""
    return Row(foreign, english, source, document)


def page(prefix: str, buckets: range) -> str:
    """Return the name of a page that falls to one of the buckets."""
    return next(name for name in (f"{prefix}:{number}" for number in range(999)) if splits.bucket(name) in buckets)


def test_cleaning():
    """Text is composed, without invisible characters, with single spaces."""
    assert clean(" a\u0308\u00ad b\u200bc\n\td\ufeff ") == "ä bc d"


@pytest.mark.parametrize(
    ("text", "words"),
    [("two words", 2), ("漢字仮名五", 2), ("重新启动 LibreOffice。", 3), ("សរសេរកម្មវិធី in Basic", 8), ("", 0)],
)
def test_words_are_counted_by_script(text, words):
    """Two characters count as a word where no spaces are written; what stands between them counts as in English."""
    assert count_words(text) == words


def test_sentences_end_before_an_upper_case_letter_or_a_parenthesis():
    """A full stop within a sentence, as before a name in lower case, ends nothing."""
    assert split_sentences("See foo(1). bar is it. (Or not.) Ünd. Ok? 5 is.") == [
        "See foo(1). bar is it.", "(Or not.) Ünd.", "Ok? 5 is.",
    ]  # fmt: skip
    assert split_sentences("これ。それ。") == ["これ。", "それ。"]


def test_sentences_are_paired_where_their_numbers_agree():
    """Where they do not, the paragraphs are a pair."""
    assert align_sentences("Eins. Zwei.", "One. Two.") == [("Eins.", "One."), ("Zwei.", "Two.")]
    assert align_sentences("Eins. Zwei. Drei.", "One. Two.") == [("Eins. Zwei. Drei.", "One. Two.")]


@pytest.mark.parametrize(
    ("foreign", "english", "kept"),
    [
        ("Weitere Einstellungen", "Other", True),  # short texts are not compared by characters
        ("Makro aus", "Macro from or save macro in it", False),  # 2 words against 7
        ("Makro aus", "Macro from or save in", True),
        ("Word", "WORD", False),
        ("12 + 34 = a", "12 + 34 = b", False),  # too few letters
        ("", "Text", False),
        ("w " * 151, "v " * 151, False),
        ("w " * 150, "v " * 150, True),
        ("Donaudampfschifffahrtsgesellschaft", "Danube ship", False),  # 34 characters against 11
    ],
)
def test_clean_pairs(foreign, english, kept):
    """Pairs are compared by words, letters and characters."""
    assert is_clean(foreign.strip(), english.strip()) is kept


@pytest.mark.parametrize("character", ["打", "か", "ក", "한"])
def test_wide_characters_weigh_more(character):
    """A character stands for two and a half of English: 12 words of 85 letters are not too many for 12 characters."""
    english = " ".join(["letters"] * 10 + ["more"])
    text = character * 12 if character != "한" else " ".join(character * 12)
    assert is_clean(text, english)
    assert not is_clean(" ".join("abcdefghijk"), english)


def test_a_pair_is_kept_once():
    """The first of equal pairs stays, with its document."""
    rows = [row("eins", "one", document="a"), row("eins", "one", document="b"), row("eins", "won", document="c")]
    assert [kept.document for kept in keep_clean(rows)] == ["a", "c"]


@given(st.lists(st.tuples(WORDS, WORDS), max_size=10), st.lists(st.tuples(WORDS, WORDS), max_size=60))
def test_training_shares_nothing_with_held_out_texts(held_pairs, train):
    """No training row has a held-out text, or an English run of 8 words of one. No row occurs twice."""
    held_out = splits.HeldOut()
    for foreign, english in held_pairs:
        held_out.add(foreign, english, "de")
    rows = list(splits.training_rows([row(*pair) for pair in train], "de", held_out))
    runs = set().union(*(word_runs(english, 8) for _, english in held_pairs))
    for kept in rows:
        assert kept.foreign not in {foreign for foreign, _ in held_pairs}
        assert kept.english not in {english for _, english in held_pairs}
        assert not word_runs(kept.english, 8) & runs
    assert len({(kept.foreign, kept.english) for kept in rows}) == len(rows)
    lost = set(train) - {(kept.foreign, kept.english) for kept in rows}
    for foreign, english in lost:
        assert held_out.leaks(row(foreign, english), "de")


def test_eight_shared_words_are_a_leak_and_seven_are_not():
    """The words of the English side count, in a row, whatever stands between them."""
    held_out = splits.HeldOut()
    held_out.add("x", "one two three four five six seven eight nine", "de")
    rows = [
        row("y", "zero one two three four, five six seven!"),
        row("z", "Zero two-three four (five) six seven eight nine."),
    ]
    assert list(splits.training_rows(rows, "de", held_out)) == rows[:1]


def test_held_pages_are_not_trained_on():
    """Pages are held out by their names, of the help of LibreOffice and of GNOME."""
    pages = [("lohelp", "lo", range(20)), ("gnomehelp", "help", range(32))]
    for source, prefix, buckets in pages:
        rows = [
            row("eins", "one", source, page(prefix, buckets)),
            row("zwei", "two", source, page(prefix, range(32, 100))),
        ]
        assert list(splits.training_rows(rows, "de", splits.HeldOut())) == rows[1:]


def test_bucket_is_the_one_of_the_original():
    """The first eight digits that md5sum gives for the name. In the published corpus the first is a test page."""
    assert splits.bucket("lo:text/shared/01/online_update_dialog.html") == 0xA95F0F2F % 100 in splits.HELP_TEST
    assert splits.bucket("lo:text/sbasic/guide/access2base.html") == 0xB4036AF4 % 100 not in range(20)


def test_multiway_table_has_only_what_all_languages_have():
    """Pinned sentences in the pinned order, the first translation on a page of the split, else on another one."""
    test, other = page("lo", splits.HELP_TEST), page("lo", splits.HELP_DEV)
    english = ["one two three", "four five six", "not in French", "not in the pinned list"]
    digests = [splits.sentence_digest(text) for text in reversed(english[:3])]

    def rows(code: str, texts: list[str], document: str = test) -> list[Row]:
        return [row(f"{code} {text}", text, "lohelp", document) for text in texts]

    german = [*rows("other", english, other), *rows("de", english[:1]), *rows("again", english[:1])]
    table = splits.multiway_table({"de": german, "fr": rows("fr", english[:2])}, digests, splits.HELP_TEST)
    assert table == [
        [english[1], f"other {english[1]}", f"fr {english[1]}"],
        [english[0], f"de {english[0]}", f"fr {english[0]}"],
    ]
    assert splits.multiway_table({}, digests, splits.HELP_TEST) == []


def test_pinned_sentences_are_those_of_the_manifest():
    """As many of each split as the published multi-way files have rows; none twice."""
    sentences = splits.pinned_tests(HERE / "tests.tsv")
    manifest = yaml.safe_load((HERE.parent / "manifest.yaml").read_text(encoding="utf-8"))
    rows = {entry["split"]: entry["rows"] for entry in manifest["files"] if entry["path"].startswith("multiway")}
    assert {split: sum(sentence.split == split for sentence in sentences) for split in ("dev", "test")} == rows
    assert len({sentence.sha256 for sentence in sentences}) == len(sentences)


def test_tail_sets_need_a_hundred_test_rows():
    """At most 400 test and 200 development rows, in document order, of five words or more."""
    test, dev = page("help", splits.GNOME_TEST), page("help", splits.GNOME_DEV)

    def rows(number: int, document: str) -> list[Row]:
        return [row(f"{index}", f"{index} words are in this", "gnomehelp", document) for index in range(number)]

    assert splits.tail_sets(rows(99, test)) == ([], [])
    short = [row("kurz", "four words are few", "gnomehelp", test)]
    assert splits.tail_sets([*rows(99, test), *short]) == ([], [])
    assert tuple(map(len, splits.tail_sets([*rows(500, test), *rows(300, dev)]))) == (200, 400)
