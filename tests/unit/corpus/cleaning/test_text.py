import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plain_text import essence, letter_share, normalize_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a\u00a0b\t\u3000c\x00\x1b d\u2028e\ufeff ", "a b c d e"),
        ("e\u0301", "é"),
        ("Ａ①ﬁ", "Ａ①ﬁ"),  # NFC, not NFKC
        ("ក\u200bខ", "ក\u200bខ"),  # Khmer word break
        ("क्\u200dष", "क्\u200dष"),  # joiner of Hindi
        ("\x07\n ", ""),
    ],
)
def test_normalize_text(text: str, expected: str) -> None:
    assert normalize_text(text) == expected


@given(st.text())
def test_normalized_text_stays_as_it_is(text: str) -> None:
    once = normalize_text(text)
    assert normalize_text(once) == once
    assert unicodedata.is_normalized("NFC", once)
    assert not any(unicodedata.category(char) == "Cc" for char in once)
    assert essence(once) == essence(text)
    assert 0 <= letter_share(once) <= 1


def test_essence_ignores_case_punctuation_and_spaces_only() -> None:
    assert essence("The “Straße”, No. 5!") == essence("the STRASSE no 5") == "thestrasseno5"
    assert essence("ｆｕｌｌ　ｗｉｄｔｈ。") == "fullwidth"
    assert essence("कि") != essence("क"), "vowel signs are kept"
    assert essence("... !?") == ""


def test_letter_share() -> None:
    assert letter_share("ab 12") == 0.5
    assert letter_share("कि") == 1
    assert letter_share("") == 0
