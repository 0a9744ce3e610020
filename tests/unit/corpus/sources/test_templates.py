import pytest

from pipeline.corpus.languages import LangPair, MissingPairError
from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.corpus.sources.codes import from_iso639_3, is_language, own_code
from pipeline.corpus.sources.templates import expand, has_templates, named_pairs

DE_EN, EN_DE, FR_EN = LangPair("de", "en"), LangPair("en", "de"), LangPair("fr", "en")
ZH_EN, DE_FR = LangPair("zh-Hans", "en"), LangPair("de", "fr")
OPUS = FileEntry(
    split="train",
    format="huggingface",
    dataset="Helsinki-NLP/opus-100",
    config="{sorted}",
    part="train",
    columns={"translation.{src}": "{src}", "translation.{tgt}": "{tgt}"},
)
FLORES = FileEntry(
    split="test",
    format="huggingface",
    dataset="mteb/flores",
    part="devtest",
    columns={"{src:flores}": "{src}", "{tgt:flores}": "{tgt}"},
)


def manifest(*entries: FileEntry, target: str | None = None, **codes: str) -> Manifest:
    return Manifest(name="opus", files=entries, codes=codes, default_target=target)


def test_each_pair_has_an_entry() -> None:
    expanded = expand(manifest(OPUS, zh="zh-Hans"), [DE_EN, FR_EN, ZH_EN]).files
    assert [entry.config for entry in expanded] == ["de-en", "en-fr", "en-zh"]
    assert expanded[1].columns == {"translation.fr": "fr", "translation.en": "en"}
    assert expanded[2].columns == {"translation.zh": "zh-Hans", "translation.en": "en"}
    assert [entry.pair for entry in expanded] == [None] * 3


def test_both_directions_are_one_entry() -> None:
    one = expand(manifest(OPUS), [DE_EN])
    assert expand(manifest(OPUS), [EN_DE]) == one
    assert expand(manifest(OPUS), [EN_DE, DE_EN]) == one


def test_the_default_target_is_the_target() -> None:
    talks = FileEntry(
        split="train", format="huggingface", dataset="talks", config="en-{src}", columns={"a": "en", "b": "{src}"}
    )
    expanded = expand(manifest(talks, target="en"), [LangPair("en", "zh-Hans"), LangPair("ar", "en")]).files
    assert [entry.config for entry in expanded] == ["en-zh-Hans", "en-ar"]
    assert expanded[0].columns == {"a": "en", "b": "zh-Hans"}
    with pytest.raises(ValueError, match="pair de-fr: corpus opus has only pairs with en; choose"):
        expand(manifest(talks, target="en"), [DE_FR])


def test_entries_of_one_table_are_one() -> None:
    plain = FileEntry(split="dev", format="multiway_tsv", paths=("dev.tsv",))
    expanded = expand(manifest(plain, FLORES, arb_Arab="ar"), [DE_EN, ZH_EN, LangPair("ar", "fr")]).files
    assert expanded[0] == plain
    assert len(expanded) == 2
    assert expanded[1].columns == {
        "deu_Latn": "de",
        "eng_Latn": "en",
        "zho_Hans": "zh-Hans",
        "arb_Arab": "ar",
        "fra_Latn": "fr",
    }


def test_files_by_pair() -> None:
    files = FileEntry(
        split="train",
        format="aligned",
        paths=("{sorted:iso639-3}/train.src.gz", "{sorted:iso639-3}/train.trg.gz"),
        archive="https://example.org/{sorted:iso639-3}.tar",
    )
    expanded = expand(manifest(files), [FR_EN, DE_EN]).files
    assert expanded[0].paths == ("eng-fra/train.src.gz", "eng-fra/train.trg.gz")
    assert expanded[0].archive == "https://example.org/eng-fra.tar"
    # source is what comes first in the name: English before French, German before English
    assert [entry.pair for entry in expanded] == [LangPair("en", "fr"), DE_EN]
    named = FileEntry(split="train", format="aligned", paths=("{pair}.{src}", "{pair}.{tgt}"))
    (entry,) = expand(manifest(named, target="en"), [LangPair("en", "pt-BR")]).files
    assert (entry.paths, entry.pair) == (("pt-BR-en.pt-BR", "pt-BR-en.en"), LangPair("pt-BR", "en"))


def test_columns_in_alphabetical_order() -> None:
    entry = FileEntry(
        split="dev",
        format="huggingface",
        config="{sorted:iso639-3}",
        columns={"sourceString": "{first:iso639-3}", "targetString": "{second:iso639-3}"},
    )
    expanded = expand(manifest(entry), [LangPair("es", "en"), DE_EN]).files
    assert [(e.config, list(e.columns.values())) for e in expanded] == [
        ("eng-spa", ["en", "es"]),
        ("deu-eng", ["de", "en"]),
    ]


def test_languages_that_a_corpus_cannot_name_are_missing_pairs() -> None:
    entry = FileEntry(split="test", format="huggingface", config="{src:iso639-3}", columns={"a": "{src}", "b": "{tgt}"})
    with pytest.raises(MissingPairError, match="xx has no iso639-3 code; name it in the manifest"):
        expand(manifest(entry), [LangPair("xx", "en")])
    with pytest.raises(MissingPairError, match="pair 'xx:en' names no two languages; write it as de-en"):
        named_pairs(["xx:en"])


def test_wrong_templates() -> None:
    entry = FileEntry(split="dev", format="huggingface", config="{src:iso}")
    with pytest.raises(ValueError, match="no codes are called 'iso'; the schemes are bcp47, iso639-3, flores, listed"):
        expand(manifest(entry), [DE_EN])
    entry = FileEntry(split="dev", format="huggingface", config="{src}", columns={"a": "{pair}"})
    with pytest.raises(ValueError, match=r"\{pair\} is two languages; a column is \{src\}"):
        expand(manifest(entry), [DE_EN])


def test_a_template_needs_pairs_and_other_entries_do_not() -> None:
    plain = manifest(FileEntry(split="dev", format="multiway_tsv", paths=("dev.tsv",)))
    assert expand(plain, []) is plain
    assert not has_templates(plain)
    assert has_templates(manifest(OPUS))
    with pytest.raises(ValueError, match="corpus opus has an entry for each pair; name pairs"):
        expand(manifest(OPUS), [])


@pytest.mark.parametrize(
    ("code", "flores", "iso"),
    [
        ("de", "deu_Latn", "deu"),
        ("zh-Hans", "zho_Hans", "zho"),
        ("zh-Hant", "zho_Hant", "zho"),
        ("pt-BR", "por_Latn", "por"),
        ("sr", "srp_Cyrl", "srp"),
        ("nb", "nob_Latn", "nob"),
        ("km", "khm_Khmr", "khm"),
        ("ast", "ast_Latn", "ast"),
    ],
)
def test_codes_of_schemes(code: str, flores: str, iso: str) -> None:
    """The codes are those of FLORES-200 (arXiv:2207.04672, table 1) and ISO 639-3."""
    assert (own_code(code, "flores", {}), own_code(code, "iso639-3", {})) == (flores, iso)
    assert own_code(code, "flores", {"mine": code}) == "mine"


def test_codes_from_iso639_3() -> None:
    assert [from_iso639_3(code) for code in ("deu", "por_BR", "zho_Hans", "srp_Latn", "ast")] == [
        "de",
        "pt-BR",
        "zh-Hans",
        "sr-Latn",
        "ast",
    ]
    assert is_language("zh-Hans")
    assert not is_language("br-EN")


def test_pairs_without_a_list_of_languages() -> None:
    assert named_pairs("de-en zh-Hans-en, pt-BR-en") == (DE_EN, ZH_EN, LangPair("pt-BR", "en"))
    assert named_pairs(["zh_CN-en", "en:sr-Latn"]) == (ZH_EN, LangPair("en", "sr-Latn"))
    for text, message in (("de", "names no two languages"), ("xx-en", "names no two"), ("de-de", "names no two")):
        with pytest.raises(ValueError, match=message):
            named_pairs(text)
