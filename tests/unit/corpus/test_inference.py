import logging
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.formats import FORMATS
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import read_manifest

Make = Callable[..., Path]
FILE_FORMATS = [name for name, format_ in FORMATS.items() if not format_.needs.dataset]


def test_manifest_is_inferred_from_names(make_corpus: Make, caplog: pytest.LogCaptureFixture) -> None:
    names = [
        "train.de-en.de",
        "train.de-en.en",
        "dev.tsv",
        "test.pt_BR-zh_CN.zh_CN",
        "test.pt_BR-zh_CN.pt_BR",
    ]
    ignored = ["README.md", "NOTICE", ".git", "LICENSE.txt", "SHA256SUMS", "a.de-en.xml", "a.de-en.ids.gz"]
    with caplog.at_level(logging.INFO):
        manifest = read_manifest(make_corpus(dict.fromkeys([*names, *ignored], "x"), "mine"))
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
    ("names", "split", "format_", "pair", "source"),
    [
        (["de-en.tsv"], "train", "tsv", "de-en", ""),
        (["de-en.train.tsv.gz"], "train", "tsv", "de-en", ""),
        (["dev.de-en.tsv.xz"], "dev", "tsv", "de-en", ""),
        (["valid/de-en.tsv.zst"], "dev", "tsv", "de-en", ""),
        (["Validation.tsv"], "dev", "multiway_tsv", None, ""),
        (["devtest.tsv"], "test", "multiway_tsv", None, ""),
        (["flores.dev.tsv"], "dev", "multiway_tsv", None, "flores"),
        (["zh_CN-en.tmx"], "train", "tmx", "zh-Hans-en", ""),
        (["sr@latin-en.jsonl"], "train", "jsonl", "sr-Latn-en", ""),
        (["pt-BR-en.jsonl"], "train", "jsonl", "pt-BR-en", ""),
        (["de-en/test-00000-of-00001.parquet"], "test", "parquet", "de-en", ""),
        (["de-en/dev-00000-of-00001-0123456789abcdef.parquet"], "dev", "parquet", "de-en", ""),
        (["de-en.de", "de-en.en"], "train", "aligned", "de-en", ""),
        (["en-fr.en.gz", "en-fr.fr.gz"], "train", "aligned", "en-fr", ""),
        (["Europarl.de-en.de", "Europarl.de-en.en"], "train", "aligned", "de-en", "Europarl"),
        (["un v1.0.de-en.de", "un v1.0.de-en.en"], "train", "aligned", "de-en", "un-v1.0"),
        (["test/newstest2014.de-en.de", "test/newstest2014.de-en.en"], "test", "aligned", "de-en", "newstest2014"),
        (["train.de-en.de.txt", "train.de-en.en.txt"], "train", "aligned", "de-en", ""),
        (["valid.de", "valid.en"], "dev", "aligned", "de-en", ""),
        (["valid.en", "valid.fr"], "dev", "aligned", "fr-en", ""),
    ],
)
def test_names_that_are_read(
    tmp_path: Path, names: list[str], split: str, format_: str, pair: str | None, source: str
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (entry,) = read_manifest(tmp_path).files
    assert (entry.split, entry.format, entry.source) == (split, format_, source)
    assert (entry.pair and entry.pair.name) == pair
    assert set(entry.paths) == set(names)


def test_devtest_is_dev_beside_a_test_set(make_corpus: Make) -> None:
    manifest = read_manifest(make_corpus(dict.fromkeys(["dev.tsv", "devtest.tsv", "test.tsv"], "x")))
    assert {entry.paths[0]: entry.split for entry in manifest.files} == {
        "dev.tsv": "dev", "devtest.tsv": "dev", "test.tsv": "test"
    }  # fmt: skip


def test_shards_are_entries_of_one_source(make_corpus: Make) -> None:
    names = [f"de-en.train-0000{number}-of-00002.parquet" for number in range(2)]
    entries = read_manifest(make_corpus(dict.fromkeys(names, "x"))).files
    assert [entry.paths[0] for entry in entries] == names
    assert {(entry.split, entry.source) for entry in entries} == {("train", "")}


def test_name_of_a_directory_becomes_a_name_of_a_source(make_corpus: Make) -> None:
    assert read_manifest(make_corpus({"dev.tsv": "x"}, "My corpus (2)")).name == "My-corpus-2"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"holds no corpus files; name files \[<source>.\]\[<split>.\]<src>-<tgt>.<tsv"),
        (["train.de-en.de"], "train.de-en.de has no counterpart; add the other side of de-en"),
        (["train.de-en.fr"], r"train.de-en.fr has a name that says neither .* or add manifest.yaml"),
        (["tain.tsv", "dev.tsv"], "tain.tsv has a name that says neither split nor languages"),
        (["train.de"], "train.de has a name that says neither"),
        (["train.de", "train.en", "train.fr"], "train.de has a name that says neither"),
        (["train.csv"], "train.csv has a name that says neither"),
        (["train"], "train has a name that says neither"),
        (["train.jsonl"], "train.jsonl has a name that says neither"),
        (["de-de.tsv"], "de-de.tsv has a name that says neither"),
        (["pt-br-en.tsv"], "'pt-br-en' may be pt-BR:en or pt:br-EN; write the one you mean with an underscore"),
        (["train.test.tsv"], "train.test.tsv has a name that says test and train; keep one of them"),
        (["dev.tsv", "dev.tsv.xz"], "dev.tsv.xz is dev.tsv again, compressed otherwise; remove one of them"),
        (["newstest2014.de-en.tsv"], r"may be a test set, by 'newstest2014', .* as test/newstest2014.de-en.tsv"),
        (["a/b/c/d/train.tsv"], "a/b/c/d is more than 3 directories deep"),
    ],
)
def test_unclear_names_are_an_error(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with pytest.raises(ValueError, match=message):
        read_manifest(tmp_path)


def test_names_and_manifest_of_the_readme_are_read(tmp_path: Path, sample: Path) -> None:
    readme = (sample.parent / "README.md").read_text(encoding="utf-8")
    formats = []
    for number, row in enumerate(re.findall(r"^\| (`[^|]+) \|", readme.split("## How do I describe")[0], re.MULTILINE)):
        for name in re.findall(r"`([^`]+)`", row):
            (tmp_path / str(number)).mkdir(exist_ok=True)
            (tmp_path / str(number) / name).write_text("x")
        formats += [entry.format for entry in read_manifest(tmp_path / str(number)).files]
    assert {*formats} == {*FILE_FORMATS}
    assert re.findall(r"`(\w+)`", re.search(r"; formats of files are ([^;]*)", readme)[1]) == FILE_FORMATS
    (tmp_path / "manifest.yaml").write_text(readme.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert [entry.source for entry in read_manifest(tmp_path).files] == ["", "web", "", "", ""]


_PARTS = [
    "train",
    "dev",
    "devtest",
    "de-en",
    "en-de",
    "pt-br-en",
    "de",
    "en",
    "zh_CN",
    "sr@latin-en",
    "europarl",
    "v7",
    "tsv",
    "tmx",
    "jsonl",
    "parquet",
    "gz",
    "xz",
    "txt",
    "newstest2014",
    "README",
    "train-00000-of-00001",
]
_DIRECTORIES = ["", "train", "test", "de-en", "x"]
_NAMES = st.lists(st.sampled_from([*_PARTS, "", "ä b"]), min_size=1, max_size=4).map(".".join)
_FILES = st.tuples(st.sampled_from(_DIRECTORIES), _NAMES.filter(lambda n: n.strip(".") and n not in _DIRECTORIES))


@given(st.lists(_FILES, min_size=1, max_size=4))
def test_any_names_are_read_or_are_an_error_that_names_the_directory(paths: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for parent, name in paths:
            path = Path(directory, parent, name)
            path.parent.mkdir(exist_ok=True)
            path.touch()
        written = {p.relative_to(directory).as_posix() for p in Path(directory).rglob("*") if p.is_file()}
        try:
            manifest = read_manifest(Path(directory))
        except ValueError as error:
            message = str(error)
        else:
            read = [path for entry in manifest.files for path in entry.paths]
            message = directory if len(set(read)) == len(read) and set(read) <= written else ""
        assert directory in message
