"""Texts as arrays of code points agree with the plain definitions in tests.plain_text, text by text."""

import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.corpus.cleaning import codepoints
from pipeline.corpus.cleaning.characters import COMPOSES, NUM_CODES, characters
from pipeline.corpus.cleaning.codepoints import Texts
from tests.plain_text import essence, letter_share, normalize_text

ODD = [
    *("", " ", "  ", " a  b ", "x ", "\u3000", "a\u0301b\x00\x01 c\ufeff", "½ ß Ⅷ ﷺ ㈠ Ω", "ﬁne", "\u1100\u1161\u11a8"),
    *("ΑΣ", "\u037e", "q\u0323\u0307", "क\u093c", "😀 a", "\U0001d400\U0002f800"),
]
texts = st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=12)), max_size=20)


def sample_texts(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").split("\n")[1:]
    return [cell for line in lines for cell in line.split("\t")]


def check(given_texts: list[str]) -> None:
    result = Texts.normalized(pa.array(given_texts, pa.string()))
    expected = [normalize_text(text) for text in given_texts]
    assert result.array.to_pylist() == expected
    assert result.lengths.tolist() == [len(text) for text in expected]
    np.testing.assert_allclose(result.letter_shares(), [letter_share(text) for text in expected], atol=1e-12)
    for hashes, key in ((result.hashes, str), (result.folded.essences, essence)):
        by_key: dict[str, set[int]] = {}
        for text, value in zip(expected, hashes.tolist(), strict=True):
            by_key.setdefault(key(text), set()).add(value)
        assert all(len(values) == 1 for values in by_key.values())
        assert len({value for values in by_key.values() for value in values}) == len(by_key)


def test_real_texts_of_fourteen_languages(sample: Path) -> None:
    check([*ODD, *sample_texts(sample / "dev.tsv")])


@settings(max_examples=settings.default.max_examples * 3 // 2)
@given(texts)
def test_any_texts(given_texts: list[str]) -> None:
    result = Texts.normalized(pa.array(given_texts, pa.string()))
    assert result.array.to_pylist() == [normalize_text(text) for text in given_texts]
    alone = [Texts.normalized(pa.array([text], pa.string())) for text in given_texts]
    assert result.hashes.tolist() == [
        int(single.hashes[0]) for single in alone
    ]  # the position in the array does not matter
    assert result.folded.essences.tolist() == [int(single.folded.essences[0]) for single in alone]
    assert result.folded.empty.tolist() == [bool(single.folded.empty[0]) for single in alone]
    shingles, owners = result.folded.shingles(2)
    of_texts = [single.folded.shingles(2)[0].tolist() for single in alone]
    assert shingles.tolist() == [value for values in of_texts for value in values]
    assert owners.tolist() == [index for index, values in enumerate(of_texts) for _ in values]


def test_a_slice_of_an_array() -> None:
    whole = pa.array(["one", "zwei ", " trois", "quattro"], pa.string())
    assert Texts.normalized(whole.slice(1, 2)).array.to_pylist() == ["zwei", "trois"]


def test_every_character_that_normalisation_may_touch_is_marked() -> None:
    marked = (characters().flags & COMPOSES) > 0
    changed = [
        c for c in range(NUM_CODES) if not 0xD800 <= c < 0xE000 and unicodedata.normalize("NFC", chr(c)) != chr(c)
    ]
    assert len(changed) > 1000
    assert marked[changed].all()
    seconds = {0x0301, 0x09BE, 0x0BD7, 0x1161, 0x11A8, 0x3099}  # they compose with the character before them
    assert marked[list(seconds)].all()


def shingles(text: str, size: int) -> set[int]:
    values, _ = Texts.normalized(pa.array([text], pa.string())).folded.shingles(size)
    return set(values.tolist())


def test_shingles_are_runs_of_words_without_case_and_punctuation() -> None:
    words = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]
    assert len(shingles(" ".join(words), 8)) == 2
    assert shingles(" ".join(words), 8) == shingles("The QUICK (brown) fox -- jumps, over the lazy dog!", 8)
    assert shingles(" ".join(words[:7]), 8) == set()
    assert shingles(" ".join(words), 8) & shingles("Yes: " + " ".join(words[:8]) + " cat", 8)
    assert not shingles(" ".join(words), 8) & shingles(" ".join(reversed(words)), 8)
    assert not shingles("ab c", 2) & shingles("a bc", 2)


@pytest.mark.parametrize(
    ("text", "letters_per_word"),
    [
        ("请选择要在文档中插入的图形文件。", 2),
        ("挿入する図形ファイルを選択してくだ。", 2),
        ("ជ្រើសឯកសារក្រាហ្វិកដែលត្រូវ", 5),
    ],
)
def test_letters_of_a_script_without_spaces_count_as_parts_of_a_word(text: str, letters_per_word: int) -> None:
    num_letters = sum(unicodedata.category(char)[0] in "LM" for char in text)
    assert len(shingles(text, 3)) == num_letters - 3 * letters_per_word + 1


@pytest.mark.parametrize("mark", ["\u00ad", "\u200d", "\u200e", "\u2060"])
def test_marks_within_words_do_not_cut_them(mark: str) -> None:
    text = "one two three four five six seven eight"
    assert shingles(text.replace("thr", f"thr{mark}"), 8) == shingles(text, 8) != set()


def test_powers_are_extended_for_other_threads_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread reads the powers before those of the inverse are computed."""
    monkeypatch.setattr(codepoints, "_tables", (np.ones(1, np.uint64), np.ones(1, np.uint64)))
    powers_of, lengths = codepoints._powers_of, []

    def slow(base: int, size: int) -> codepoints.Hashes:
        if size == 100:
            lengths.append([len(powers) for powers in codepoints._powers(50)])
        return powers_of(base, size)

    monkeypatch.setattr(codepoints, "_powers_of", slow)
    assert [len(powers) for powers in codepoints._powers(100)] == [100, 100]
    assert lengths == [[50, 50], [50, 50]]


@pytest.mark.parametrize(
    ("text", "same"),
    [("ガラス", "ｶﾞﾗｽ"), ("\u01f0", "J\u030c"), ("\u1e63", "\u017f\u0323"), ("\u1e97est", "T\u0308est")],
)
def test_marks_compose_with_what_folding_leaves(text: str, same: str) -> None:
    around = [["x", form, "", f"y {form} z", "q\u0323\u0307"] for form in (text, same)]
    first, second = (Texts.normalized(pa.array(texts)).folded for texts in around)
    assert first.essences.tolist() == second.essences.tolist()
    assert first.words.tolist() == second.words.tolist()
    assert first.word_offsets.tolist() == second.word_offsets.tolist()
