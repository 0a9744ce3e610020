import pytest

from eval.language import pair_labels, split_pair, text_direction


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("de-en", ("de", "en")),
        ("zh-Hans-en", ("zh-Hans", "en")),
        ("en-pt-BR", ("en", "pt-BR")),
        ("sr-Latn-zh-Hant-TW", ("sr-Latn", "zh-Hant-TW")),
        ("yue-en", ("yue", "en")),
        ("zh-yue:en", ("zh-yue", "en")),
    ],
)
def test_pairs_split_where_a_language_starts(pair: str, expected: tuple[str, str]) -> None:
    assert split_pair(pair) == expected


@pytest.mark.parametrize("pair", ["de", "zh-yue-en", "-en", "de:", "a:b:c", ""])
def test_pairs_that_do_not_split_are_refused(pair: str) -> None:
    with pytest.raises(ValueError, match="pair="):
        split_pair(pair)


@pytest.mark.parametrize(
    ("code", "direction"),
    [
        ("ar", "rtl"),
        ("he-IL", "rtl"),
        ("mzn", "rtl"),
        ("az-Arab", "rtl"),
        ("sd-Deva", "ltr"),
        ("en", "ltr"),
        ("zh-Hans", "ltr"),
    ],
)
def test_direction_follows_script_then_language(code: str, direction: str) -> None:
    assert text_direction(code) == direction


def test_labels_drop_the_shared_side() -> None:
    assert pair_labels(["de-en", "fr-en"]) == {"de-en": "de", "fr-en": "fr"}
    assert pair_labels(["en-de", "en-fr"]) == {"en-de": "de", "en-fr": "fr"}
    assert pair_labels(["de-en", "en-fr"]) == {"de-en": "de-en", "en-fr": "en-fr"}
    assert pair_labels(["zh-yue-en"], {"zh-yue-en": ("zh-yue", "en")}) == {"zh-yue-en": "zh-yue"}
