import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus.fetch import Corpus, fetch, read_corpus
from pipeline.corpus.languages import LangPair

Make = Callable[..., Path]


def fetched(source: Path, tmp_path: Path) -> Corpus:
    out = tmp_path / "fetched"
    out.mkdir()
    fetch(source=source, out=out)
    return read_corpus(out)


def test_sample_is_fetched_whole(sample: Path, tmp_path: Path) -> None:
    corpus = fetched(sample, tmp_path)
    assert corpus.codes == (
        "de",
        "el",
        "en",
        "es",
        "eu",
        "fr",
        "hi",
        "ja",
        "km",
        "ko",
        "ru",
        "tr",
        "vi",
        "zh-Hans",
    )
    assert (corpus.name, corpus.licence, corpus.default_target) == ("sample", "MPL-2.0", "en")
    assert "Mozilla Public License, v. 2.0" in corpus.notice
    assert (tmp_path / "fetched" / "NOTICE").read_text() == corpus.notice
    assert corpus.files[0].filled == {
        "en": 8573, "de": 6000, "fr": 4200, "es": 3000, "ru": 2100, "zh-Hans": 1500, "ja": 1050,
        "tr": 750, "ko": 520, "el": 370, "vi": 260, "eu": 180, "hi": 130, "km": 90,
    }  # fmt: skip
    for split in ("train", "dev", "test"):
        copy = tmp_path / "fetched" / "files" / f"{split}.tsv"
        assert copy.read_bytes() == (sample / f"{split}.tsv").read_bytes()
    assert str(tmp_path) not in (tmp_path / "fetched" / "corpus.json").read_text()


def test_sample_serves_every_direction(sample: Path, tmp_path: Path) -> None:
    corpus = fetched(sample, tmp_path)
    to_en = list(corpus.rows(LangPair("zh-Hans", "en"), "train"))
    from_en = list(corpus.rows(LangPair("en", "zh-Hans"), "train"))
    assert len(to_en) == 1500
    assert to_en[0] == ("设置页眉的属性。", "Set the properties of the header.")
    assert [(en, zh) for zh, en in to_en] == from_en
    table = [line.split("\t") for line in (sample / "train.tsv").read_text(encoding="utf-8").split("\n")]
    de, fr = table[0].index("de"), table[0].index("fr")
    assert list(corpus.rows(LangPair("de", "fr"), "train")) == [
        (row[de], row[fr]) for row in table[1:] if len(row) > 1 and row[de] and row[fr]
    ]
    assert len(list(corpus.texts("en", "test"))) == 300
    assert corpus.has_pair(LangPair("km", "hi"))
    with pytest.raises(ValueError, match="corpus sample has no 'nl'; it has de, el"):
        corpus.has_pair(LangPair("nl", "en"))
    with pytest.raises(ValueError, match="split 'valid' is none of train, dev, test"):
        corpus.rows(LangPair("de", "en"), "valid").__next__()


def test_byte_order_mark_crlf_and_missing_last_line_end(make_corpus: Make, tmp_path: Path) -> None:
    source = make_corpus({
        "train.de-en.de": b"\xef\xbb\xbfEins\r\nZwei\r\n",
        "train.de-en.en": b"One\nTwo\xe2\x80\xa8and\x85".replace(b"\x85", b"\xc2\x85"),
        "dev.tsv": b"\xef\xbb\xbfde\ten\r\nDrei\tThree\r\n",
    })  # fmt: skip
    corpus = fetched(source, tmp_path)
    assert list(corpus.rows(LangPair("de", "en"), "train")) == [("Eins", "One"), ("Zwei", "Two\u2028and\x85")]
    assert list(corpus.rows(LangPair("en", "de"), "dev")) == [("Three", "Drei")]
    assert corpus.default_target == "en"
    assert corpus.files[1].entry.rows == 2


GOOD = "de\ten\nHallo\tHello\n"
ENTRY = "name: x\nfiles: [{split: dev, path: train.tsv, format: multiway_tsv}]"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.tsv": b"de\ten\nHallo\tHello\nTsch\xfc\xdf\tBye\n"},
         r"train\.tsv: line 3: byte 22 \(0xfc\) is not UTF-8 .*; convert the file to UTF-8"),
        ({"train.tsv": b"\xef\xbb\xbfde\ten\n\xff\ta\n"}, r"line 2: byte 9 \(0xff\) is not UTF-8"),
        ({"train.tsv": b""}, "train.tsv is empty; its first line must hold the language codes"),
        ({"train.tsv": "de\ten\n"}, "train.tsv: empty, without a single row"),
        ({"train.tsv": "de\ten\nHallo\n"}, "line 2: 1 cells where the header has 2; add or remove tabs"),
        ({"train.tsv": "de\ten\nHallo\t\n \t\n"}, "train.tsv: one-sided, every row is empty in en; add the"),
        ({"train.tsv": "de\nHallo\n"}, "train.tsv: line 1 holds one code, de; parallel text needs two"),
        ({"train.tsv": "de\tde\nHallo\tHallo\n"}, "train.tsv: line 1: de heads several columns; rename"),
        ({"train.tsv": "de\tEnglish\nHallo\tHello\n"}, "line 1: language code 'English' is not of BCP-47"),
        ({"train.de-en.de": "a\nb\n", "train.de-en.en": "a\n"},
         r"train\.de-en\.de has 2 lines and .*\.en has 1; aligned files must have the same number"),
        ({"train.de-en.de": "a\nb\n", "train.de-en.en": "\n \n"}, "one-sided, every row is empty in en"),
        ({"train.de-en.de": "", "train.de-en.en": ""}, r"de-en\.de and .*: empty, without a single row"),
        ({"train.de-en.de": "a\n", "train.de-en.en": ""}, "has 1 lines and .* has 0"),
        ({"train.tsv": GOOD, "manifest.yaml": ENTRY.replace("train", "dev")},
         r"dev\.tsv does not exist; put the file there or take it out of the manifest"),
        ({"train.tsv": GOOD, "manifest.yaml":
          "name: x\nfiles: [{split: dev, path: train.tsv, format: multiway_tsv, sha256: '0'}]"},
         "train.tsv: sha256 is [0-9a-f]{64} where the manifest says 0; fetch the file again"),
        ({"train.tsv": GOOD, "manifest.yaml":
          "name: x\nfiles: [{split: dev, path: train.tsv, format: multiway_tsv, rows: 2}]"},
         "train.tsv: 1 rows where the manifest says 2; fetch the file again"),
        ({"train.tsv": GOOD, "manifest.yaml": ENTRY.replace("multiway_tsv", "aligned")},
         "train.tsv: format aligned takes source and target, not 1 files; correct the entry"),
        ({"a": "a", "b": "b", "manifest.yaml":
          "name: x\nfiles: [{split: dev, source: a, target: b, format: aligned}]"},
         "format aligned needs the pair of its files; add one, as pair: de-en"),
        ({"train.tsv": GOOD, "manifest.yaml":
          "name: x\ndefault_target: fr\nfiles: [{split: dev, path: train.tsv, format: multiway_tsv}]"},
         "default_target fr is none of the codes de, en"),
    ],
)  # fmt: skip
def test_wrong_files_are_named(make_corpus: Make, tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    source, out = make_corpus(files), tmp_path / "out"
    out.mkdir()
    with pytest.raises(ValueError, match=message):
        fetch(source=source, out=out)
    assert not list(out.iterdir()), "nothing is written before everything is checked"


def test_manifest_renames_columns_and_checksums_are_recorded(make_corpus: Make, tmp_path: Path) -> None:
    manifest = "name: x\ncodes: {cn: zh-Hans}\nfiles: [{split: train, path: a/t.tsv, format: multiway_tsv}]\n"
    source = make_corpus({"manifest.yaml": manifest})
    (source / "a").mkdir()
    (source / "a" / "t.tsv").write_text("cn\ten\n你好\tHello\n", encoding="utf-8")
    corpus = fetched(source, tmp_path)
    assert list(corpus.rows(LangPair("en", "zh-Hans"), "train")) == [("Hello", "你好")]
    content = json.loads((tmp_path / "fetched" / "corpus.json").read_text())
    assert len(content["files"][0]["sha256"][0]) == 64
    assert content["notice"] == ""
