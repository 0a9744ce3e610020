import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import corpus_inputs, read_manifest
from pipeline.corpus.readers import corpus_codes

Make = Callable[..., Path]
FILE = "files: [{split: train, path: train.tsv, format: multiway_tsv}]\n"


def test_manifest_of_the_sample(sample: Path) -> None:
    manifest = read_manifest(sample)
    assert (manifest.name, manifest.licence, manifest.default_target) == ("sample", "MPL-2.0", "en")
    assert [(f.split, f.paths, f.rows) for f in manifest.files] == [
        ("train", ("train.tsv",), 8573),
        ("dev", ("dev.tsv",), 200),
        ("test", ("test.tsv",), 300),
    ]
    assert {path.name for path in corpus_inputs(sample)} == {
        "manifest.yaml", "NOTICE", "train.tsv", "dev.tsv", "test.tsv"
    }  # fmt: skip


def test_codes_of_the_sample_are_bcp47(sample: Path) -> None:
    expected = "de el en es eu fr hi ja km ko ru tr vi zh-Hans"
    assert corpus_codes(sample) == tuple(expected.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "is no mapping"),
        ("name: [\n", "manifest.yaml: while parsing"),
        (FILE, "field name is missing"),
        ("name: x\n", "field files is missing or empty"),
        ("name: x\nlicense: y\n" + FILE, r"unknown field 'license'; did you mean licence\?"),
        ("name: x\ndefault_target: no\n" + FILE, r"default_target: False is no text; quote it"),
        ("name: x\ncodes: {no: nb}\n" + FILE, "codes: False is no text; quote it"),
        ("name: x\ncodes: {cn: chinese}\n" + FILE, "language code 'chinese' is not of BCP-47 form"),
        ("name: x\nfiles: [{split: train, path: a}]\n", "an entry has no format"),
        ("name: x\nfiles: [{split: train, format: aligned, source: a}]\n", "an entry has no target"),
        (
            "name: x\nfiles: [{split: trian, path: a, format: f}]\n",
            r"files: a: split 'trian' .* mean train\?",
        ),
        (
            "name: x\nfiles: [{split: dev, path: ../a, format: f}]\n",
            "leaves the corpus directory; move the file",
        ),
        ("name: x\nfiles: [{split: dev, path: /a, format: f}]\n", "leaves the corpus directory"),
        ("name: x\nfiles: [{split: dev, path: a, format: f, rows: many}]\n", "rows='many' is no count"),
        ("name: x\nfiles: [{split: dev, path: a, format: f, sha256: [b, c]}]\n", "2 sha256 for 1 files"),
        ("name: x\nfiles: [{split: dev, path: a, format: f, pair: de}]\n", "'de' has no two BCP-47 codes"),
        (
            "name: x\nfiles: [{split: dev, path: a, format: f, pair: pt-BR-en}]\n",
            "may be pt-BR:en or pt:br-EN",
        ),
    ],
)
def test_wrong_manifest_names_file_field_and_remedy(make_corpus: Make, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"manifest\.yaml: .*") as caught:
        read_manifest(make_corpus({"manifest.yaml": text}))
    caught.match(message)


def test_pair_of_a_manifest_uses_its_codes(make_corpus: Make) -> None:
    entry = "{split: dev, source: a, target: b, format: aligned, pair: 'cn:en'}"
    manifest = read_manifest(make_corpus({"manifest.yaml": f"name: x\ncodes: {{cn: zh-Hans}}\nfiles: [{entry}]\n"}))
    assert manifest.files[0].pair == LangPair("zh-Hans", "en")
    assert manifest.files[0].paths == ("a", "b")


def test_missing_directory_and_unknown_format(tmp_path: Path, make_corpus: Make) -> None:
    with pytest.raises(ValueError, match=r"corpus.path=.*nowhere is not a directory; give one that holds a corpus"):
        read_manifest(tmp_path / "nowhere")
    corpus = make_corpus({"manifest.yaml": "name: x\nfiles: [{split: dev, path: a, format: tmy}]\n"})
    with pytest.raises(ValueError, match=r"format 'tmy' is unknown; did you mean tmx\? \(the formats are mult"):
        corpus_codes(corpus)


def test_manifest_is_inferred_from_names(make_corpus: Make, caplog: pytest.LogCaptureFixture) -> None:
    names = [
        "train.de-en.de",
        "train.de-en.en",
        "dev.tsv",
        "test.pt_BR-zh_CN.zh_CN",
        "test.pt_BR-zh_CN.pt_BR",
    ]
    with caplog.at_level(logging.INFO):
        manifest = read_manifest(make_corpus(dict.fromkeys([*names, "README.md", "NOTICE", ".git"], "x"), "mine"))
    assert manifest.name == "mine"
    assert {(f.split, f.format, f.paths, f.pair) for f in manifest.files} == {
        ("train", "aligned", ("train.de-en.de", "train.de-en.en"), LangPair("de", "en")),
        ("dev", "multiway_tsv", ("dev.tsv",), None),
        (
            "test",
            "aligned",
            ("test.pt_BR-zh_CN.pt_BR", "test.pt_BR-zh_CN.zh_CN"),
            LangPair("pt-BR", "zh-Hans"),
        ),
    }
    assert "has no manifest.yaml; inferred from the names of its files" in caplog.text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "holds no corpus files; name files <split>.tsv or <split>.<src>-<tgt>.<code>"),
        (["train.de-en.de"], "train.de-en.de has no counterpart; add the other side of de-en"),
        (["train.de-en.fr"], r"train.de-en.fr has a name that says neither .* or add manifest.yaml"),
        (["tain.tsv", "dev.tsv"], "tain.tsv has a name that says neither split nor languages"),
        (["train.de"], "train.de has a name that says neither"),
    ],
)
def test_names_that_say_nothing_are_an_error(make_corpus: Make, names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_manifest(make_corpus(dict.fromkeys(names, "x")))
