"""The check of scripts, on the held-out rows of the sample and on texts for this test."""

import pyarrow as pa
import pytest

from pipeline.corpus.cleaning.codepoints import Texts
from pipeline.corpus.cleaning.scripts import scripts_of, wrong_script


def wrong(code: str, *texts: str, **settings: float) -> list[bool]:
    result: list[bool] = wrong_script(Texts.normalized(pa.array(texts, pa.string())), code, **settings).tolist()
    return result


def test_clean_text_stays(held_out_texts: dict[str, list[str]]) -> None:
    assert len(held_out_texts) == 14
    for code, texts in held_out_texts.items():
        assert sum(wrong(code, *texts)) <= 0.005 * len(texts), code


def test_text_that_is_not_translated_is_removed(held_out_texts: dict[str, list[str]]) -> None:
    for code in ("ru", "km", "ja", "zh-Hant", "ko"):
        assert sum(wrong(code, *held_out_texts["en"])) > 0.99 * len(held_out_texts["en"]), code
    for code in ("ru", "km"):
        assert sum(wrong("en", *held_out_texts[code])) > 0.95 * len(held_out_texts[code]), code


@pytest.mark.parametrize(
    ("code", "scripts"),
    [
        ("sr", {"Cyrl"}),
        ("sr-Latn", {"Latn"}),
        ("sr-ME", {"Latn"}),
        ("zh-Hant", {"Hani", "Bopo"}),
        ("zh", {"Hani", "Bopo"}),
        ("cmn", {"Hani", "Bopo"}),
        ("ja", {"Hani", "Hira", "Kana"}),
        ("ko", {"Hang", "Hani"}),
        ("fa", {"Arab"}),
        ("nb", {"Latn"}),
        ("no", {"Latn"}),
        ("pa-PK", {"Arab"}),
        ("ca-valencia", {"Latn"}),
        ("xx", set()),  # no language has this code
    ],
)
def test_scripts_of_a_language(code: str, scripts: set[str]) -> None:
    """The expected scripts are those of CLDR (supplemental/likelySubtags.xml)."""
    assert set(scripts_of(code)) == scripts


def test_latin_names_are_tolerated_in_other_scripts() -> None:
    assert wrong("ja", "GNOME Evolution で LibreOffice Calc を開く") == [False]
    assert wrong("ja", "Open LibreOffice Calc in GNOME Evolution") == [True]
    # of ten letters nine are Latin; eight of them do not count, and of the other two half is Cyrillic
    assert wrong("ru", "abcdefghi я") == [False]
    assert wrong("ru", "abcdefghi я", min_share=0.51) == [True]
    assert wrong("en", "abcde ячсми") == [False]
    assert wrong("en", "abcd ячсми") == [True]


def test_few_letters_and_letters_of_no_script_do_not_count() -> None:
    assert wrong("ru", "GTK", "3.14", "", "GTKx") == [False, False, False, True]
    assert wrong("ru", "GTK", min_letters=3) == [True]
    assert wrong("ja", "ーーーーーー") == [False]  # U+30FC belongs to hiragana and katakana alike
    assert wrong("xx", "абвгд", "abcde") == [False, False]


def test_japanese_in_three_scripts_is_japanese_and_not_chinese() -> None:
    text = "変更した場合は、ここからダウンロードできます。"
    assert wrong("ja", text) == [False]
    assert wrong("zh-Hans", text) == [True]
    assert wrong("zh-Hant", "简体字") == wrong("zh-Hans", "繁體字樣") == [False]  # not a matter of scripts


def test_texts_are_judged_on_their_own(held_out_texts: dict[str, list[str]]) -> None:
    texts = [*held_out_texts["ru"][:20], *held_out_texts["en"][:20], "", *held_out_texts["ja"][:20]]
    assert wrong("ru", *texts) == [wrong("ru", text)[0] for text in texts]
