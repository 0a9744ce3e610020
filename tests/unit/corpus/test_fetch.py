from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.dag import stages
from pipeline.dag.corpus import Corpus
from pipeline.files import file_sha256
from tests.corpora import prepare, table_rows

Make = Callable[..., Path]


def fetched(source: Path, tmp_path: Path, pairs: str = "de-en") -> Corpus:
    return prepare(source, pairs, tmp_path / "store")


def test_sample_is_fetched_whole(sample: Path, tmp_path: Path) -> None:
    corpus = fetched(sample, tmp_path)
    train, dev, test = (table for table, _ in corpus.tables)
    assert (train.split, dev.split, test.split) == ("train", "dev", "test")
    assert (train.rows, dev.rows, test.rows) == (8573, 200, 300)
    assert (corpus.manifest.name, train.source, train.licence) == ("sample", "sample", "MPL-2.0")
    assert "Mozilla Public License, v. 2.0" in corpus.notice
    assert train.filled == {
        "en": 8573, "de": 6000, "fr": 4200, "es": 3000, "ru": 2100, "zh-Hans": 1500, "ja": 1050,
        "tr": 750, "ko": 520, "el": 370, "vi": 260, "eu": 180, "hi": 130, "km": 90,
    }  # fmt: skip
    lines = (sample / "train.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert table_rows(train, *train.codes) == [tuple(cell or None for cell in line.split("\t")) for line in lines[1:]]
    artifact = corpus.tables[0][1]
    assert str(tmp_path) not in (artifact.path / "tables.json").read_text()


def test_byte_order_mark_crlf_and_missing_last_line_end(make_corpus: Make, tmp_path: Path) -> None:
    source = make_corpus({
        "train.de-en.de": b"\xef\xbb\xbfEins\r\nZwei\r\n",
        "train.de-en.en": b"One\nTwo\xe2\x80\xa8and\x85".replace(b"\x85", b"\xc2\x85"),
        "dev.tsv": b"\xef\xbb\xbfde\ten\r\nDrei\tThree\r\n",
        "test.tsv": b"de\ten\nVier\tFour\n",
    })  # fmt: skip
    tables = {table.split: table for table, _ in fetched(source, tmp_path).tables}
    assert table_rows(tables["train"], "de", "en") == [("Eins", "One"), ("Zwei", "Two\u2028and\x85")]
    assert table_rows(tables["dev"], "en", "de") == [("Three", "Drei")]


@pytest.mark.parametrize("pairs", ["all de-en", "ALL"])
def test_all_pairs_are_one_word_alone(sample: Path, tmp_path: Path, pairs: str) -> None:
    with pytest.raises(ValueError, match=r"is every pair; write it alone and in small letters, LANG_PAIRS=all"):
        fetched(sample, tmp_path, pairs)


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
        ({"train.tsv": "de\ten\nHallo\n"}, "line 2: no tab in 'Hallo', where the header has 2 cells; put tabs"),
        ({"train.tsv": "de\ten\nHallo\t\n \t\n"}, "train.tsv: one-sided, every row is empty in en; add the"),
        ({"train.tsv": "de\nHallo\n"}, "train.tsv: line 1: no tab in 'de'; a table of many languages begins with"),
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
    with pytest.raises(ValueError, match=message):
        fetched(make_corpus(files), tmp_path)


def test_manifest_renames_columns(make_corpus: Make, tmp_path: Path) -> None:
    manifest = "name: x\ncodes: {cn: zh-Hans}\nfiles:\n" + "".join(
        f"- {{split: {split}, path: a/{file}.tsv, format: multiway_tsv}}\n"
        for split, file in (("train", "t"), ("dev", "dev"), ("test", "dev"))
    )
    source = make_corpus({"manifest.yaml": manifest})
    (source / "a").mkdir()
    (source / "a" / "t.tsv").write_text("cn\ten\n你好\tHello\n", encoding="utf-8")
    (source / "a" / "dev.tsv").write_text("cn\ten\n再见\tBye\n", encoding="utf-8")
    (table, _), *_ = fetched(source, tmp_path, "en-zh-Hans").tables
    assert table_rows(table, "en", "zh-Hans") == [("Hello", "你好")]


def test_a_file_is_hashed_once_however_many_pairs_it_serves(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def counting(path: Path) -> str:
        hashed.append(path.name)
        return file_sha256(path)

    monkeypatch.setattr(stages, "file_sha256", counting)
    corpus = fetched(sample, tmp_path, "de-en fr-en ja-en")
    assert len(corpus.pairs) == 3
    assert sorted(hashed) == ["dev.tsv", "test.tsv", "train.tsv"]
