import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.languages import LangPair, normalize_code, parse_pair, parse_pairs

CODES = ("de", "el", "en", "es", "fr", "ja", "pt-BR", "sr", "sr-Latn", "zh-Hans", "zh-Hant")
_code = st.sampled_from(CODES)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("de", "de"),
        ("zh_CN", "zh-Hans"),
        ("zh-cn", "zh-Hans"),
        ("zh_TW", "zh-Hant"),
        ("pt_BR", "pt-BR"),
        ("PT-br", "pt-BR"),
        ("sr@latin", "sr-Latn"),
        ("sr_latn_rs", "sr-Latn-RS"),
        ("es-419", "es-419"),
        ("ca@valencia", "ca-valencia"),
        ("iw", "he"),
        (" km ", "km"),
    ],
)
def test_normalize_code(code: str, expected: str) -> None:
    assert normalize_code(code) == expected


@pytest.mark.parametrize("code", ["", "d", "deutsch", "Hans-en", "de-", "en@boldquot", "de-en-fr", "d3", "de.UTF-8"])
def test_malformed_code_is_an_error_with_a_remedy(code: str) -> None:
    with pytest.raises(ValueError, match="is not of BCP-47 form; write it as de, pt-BR or zh-Hans"):
        normalize_code(code)
    with pytest.raises(ValueError, match=r"language code 'x{40}…' is not"):
        normalize_code("x" * 1000)


@given(st.text(max_size=12))
def test_normalize_code_never_fails_otherwise_and_is_idempotent(text: str) -> None:
    try:
        code = normalize_code(text)
    except ValueError:
        return
    assert normalize_code(code) == code
    assert code.isascii()


@given(_code, _code)
def test_both_forms_of_a_pair_are_read(src: str, tgt: str) -> None:
    if src == tgt:
        with pytest.raises(ValueError, match="source and target are one language; choose two"):
            parse_pair(f"{src}:{tgt}", CODES)
        return
    pair = LangPair(src, tgt)
    assert parse_pair(pair.name, CODES) == pair
    assert parse_pair(f"{src}:{tgt}", CODES) == pair
    assert parse_pair(pair.name.lower(), CODES) == pair


@given(st.text(max_size=12))
def test_any_other_text_is_an_error_that_lists_the_codes(text: str) -> None:
    try:
        pair = parse_pair(text, CODES)
    except ValueError as error:
        message = str(error)
    else:
        message = ", ".join(CODES) if {pair.src, pair.tgt} <= set(CODES) else ""
    assert ", ".join(CODES) in message or "one language" in message


def test_names_of_packages_are_read() -> None:
    assert parse_pair("zh_CN-en", CODES) == LangPair("zh-Hans", "en")
    assert parse_pair("en:sr@latin", CODES) == LangPair("en", "sr-Latn")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dee-en", r"pair 'dee-en': the corpus has no 'dee'; did you mean de-en\? \(it has de, el, en"),
        ("zh-en", r"the corpus has no 'zh'; did you mean zh-Hans-en\?"),
        ("en-zh", r"the corpus has no 'zh'; did you mean en-zh-Hans\?"),
        ("zh-Hans-CN-en", r"did you mean zh-Hans-en\?"),
        (
            "de_en",
            r"'de_en' is no pair, which has a hyphen between its codes; did you mean de-en\? \(the corpus has de",
        ),
        ("zh_en", r"did you mean zh-Hans-en\?"),
        ("en_zh_TW", r"did you mean en-zh-Hant\?"),
        ("pt_BR_en", r"did you mean pt-BR-en\?"),
        ("de/en", r"did you mean de-en\?"),
        ("de2en", r"did you mean de-en\?"),
        ("deen", r"did you mean de-en\?"),
        ("deu_eng", r"did you mean de-en\?"),
        ("jp-en", r"the corpus has no 'jp'; did you mean ja-en\?"),
        ("en-gr", r"the corpus has no 'gr'; did you mean en-el\?"),
        ("de-en fr-en", r"is several pairs in one; put commas between them, de-en,fr-en"),
        ("de-qq", r"the corpus has no 'qq' \(it has de, el"),
        ("de", r"'de' is one language, or none, and no pair; did you mean de-en\? \(the corpus has de, el"),
        ("", "'' is one language, or none, and no pair; write it as src-tgt"),
        ("en", "'en' is one language, or none, and no pair; write it as src-tgt"),
    ],
)
def test_unknown_code_names_the_nearest(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_pair(text, CODES)


def test_bare_code_is_no_pair_but_a_suggestion_for_the_default_target() -> None:
    with pytest.raises(ValueError, match=r"did you mean fr-de\?"):
        parse_pair("fr", CODES, default_target="de")


def test_ambiguous_pair_lists_both_readings_and_a_colon_settles_it() -> None:
    codes = ("br-FR", "fr", "pt", "pt-BR")
    with pytest.raises(ValueError, match=r"pair 'pt-br-fr' is ambiguous; .* pt:br-FR or pt-BR:fr"):
        parse_pair("pt-br-fr", codes)
    assert parse_pair("pt:br-fr", codes) == LangPair("pt", "br-FR")
    assert parse_pair("pt-BR:fr", codes) == LangPair("pt-BR", "fr")
    assert parse_pair("pt-BR-fr", codes) == LangPair("pt-BR", "fr"), "an exact match wins"


def test_exactly_ambiguous_pair() -> None:
    with pytest.raises(ValueError, match="x:y-z or x-y:z"):
        parse_pair("x-y-z", ("x", "x-y", "y-z", "z"))


def test_parse_pairs_keeps_the_order_and_takes_text_or_list() -> None:
    expected = (LangPair("fr", "en"), LangPair("de", "en"), LangPair("en", "zh-Hans"))
    assert parse_pairs("fr-en  de-en,en-zh-Hans", CODES) == expected
    assert parse_pairs(["fr-en", "de-en", "en:zh-Hans"], CODES) == expected


def test_pair_named_twice_or_none_named_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"pair zh-Hans-en is named twice \('zh-Hans-en' and 'zh_CN:en'\); remove one"):
        parse_pairs("zh-Hans-en zh_CN:en", CODES)
    with pytest.raises(ValueError, match="no language pair is given; name some, as src-tgt, of de, el"):
        parse_pairs(" ", CODES)


def test_pairs_are_ordered_and_checked() -> None:
    assert sorted([LangPair("fr", "en"), LangPair("de", "fr"), LangPair("de", "en")])[0].name == "de-en"
    with pytest.raises(ValueError, match="a side is empty"):
        LangPair("", "en")
