import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.formats import FORMATS
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry, is_url, read_manifest
from pipeline.corpus.readers import open_table

Make = Callable[..., Path]


def entry(fields: str) -> str:
    """Manifest of one entry."""
    return f"name: x\nfiles: [{{split: dev, {fields}}}]\n"


FILE = "files: [{split: train, path: train.tsv, format: multiway_tsv}]\n"


def test_manifest_of_the_sample(sample: Path) -> None:
    manifest = read_manifest(sample)
    assert (manifest.name, manifest.licence, manifest.default_target) == ("sample", "MPL-2.0", "en")
    assert [(f.split, f.paths, f.rows) for f in manifest.files] == [
        ("train", ("train.tsv",), 8573),
        ("dev", ("dev.tsv",), 200),
        ("test", ("test.tsv",), 300),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "is no mapping"),
        ("name: [\n", "manifest.yaml: while parsing"),
        (FILE, "name is not set"),
        ("name: x\n", "files is not set"),
        ("name: x\nfiles: []\n", "files is empty; list the files"),
        ("name: x\nlicense: y\n" + FILE, r"license does not exist; did you mean licence"),
        ("name: x\ndefault_target: no\n" + FILE, "default_target=False must be of type str, not bool; quote it"),
        ("name: x\ncodes: {no: nb}\n" + FILE, "codes={False: 'nb'} must be a mapping with names as keys; quote it"),
        ("name: x\ncodes: {cn: chinese}\n" + FILE, "language code 'chinese' is not of BCP-47 form"),
        ("name: x\nfiles: [{split: train, path: a}]\n", r"files\[0\].format is not set"),
        ("name: x\nfiles: [{split: train, format: aligned, source: a}]\n", "an entry of format aligned has no target"),
        (
            "name: x\nfiles: [{split: trian, path: a, format: tsv}]\n",
            r"files: a: split 'trian' .* mean train\?",
        ),
        (
            "name: x\nfiles: [{split: dev, path: ../a, format: tsv}]\n",
            "leaves the corpus directory; move the file",
        ),
        ("name: x\nfiles: [{split: dev, path: /a, format: tsv}]\n", "leaves the corpus directory"),
        (
            "name: x\nfiles: [{split: dev, path: a, format: tsv, rows: many}]\n",
            r"files\[0\].rows='many' must be of type int",
        ),
        ("name: x\nfiles: [{split: dev, path: a, format: tsv, sha256: [b, c]}]\n", "2 sha256 for 1 files"),
        ("name: x\nfiles: [{split: dev, path: a, format: tsv, pair: de}]\n", "'de' has no two BCP-47 codes"),
        (
            "name: x\nfiles: [{split: dev, path: a, format: tsv, pair: pt-BR-en}]\n",
            "may be pt-BR:en or pt:br-EN",
        ),
        ("name: my corpus\n" + FILE, "name 'my corpus' is no name; use letters, digits, dots, - and _, and title"),
        ('name: ".."\n' + FILE, r"name '\.\.' is no name; use letters"),
        (
            entry("path: a, format: tsv, pair: de-en, colums: [de]"),
            r"files\[0\].colums does not exist; did you mean columns",
        ),
        (entry("format: tsv, pair: de-en"), "an entry of format tsv has no path"),
        (entry("source: a, target: b, format: tsv, pair: de-en"), "an entry of format tsv has no path"),
        (entry("path: a, format: aligned, pair: de-en"), "a: format aligned takes source and target, not 1 files"),
        (entry("path: a, target: b, format: aligned, pair: de-en"), r"together; write path: \[source, target\]"),
        (
            entry("path: a, source: web, format: tsv, pair: de-en"),
            "path and source do not go together; .* name for what",
        ),
        (entry("path: a, format: tsv, pair: de-en, rows: -1"), "rows=-1 is no count"),
        (entry("path: a, format: jsonl, columns: [[de], en]"), r"files.columns: \['de'\] is no text"),
        (entry("source: a, target: b, format: aligned"), "a, b: format aligned needs the pair of its files; add one"),
        (entry("path: [a, b], format: aligned, pair: de-en, columns: [de, en]"), "aligned takes no columns; remove"),
        (entry("path: a, format: multiway_tsv, pair: de-en"), "multiway_tsv takes no pair; remove it, the first line"),
        (entry("path: a, format: tsv"), "format tsv needs its languages; add them, as pair: de-en, or as columns: "),
        (entry("path: a, format: tmx"), "format tmx needs its languages"),
        (entry("path: a, format: tsv, columns: {de: de, en: en}"), "columns: field 'de' is no number from 0; write"),
        (entry("path: a, format: tsv, columns: {'²': de, 1: en}"), "columns: field '²' is no number from 0; write"),
        (entry("path: a, format: tsv, columns: []"), r"columns: \[\] names no fields; write them as"),
        (entry("path: a, format: tsv, columns: de"), "columns: 'de' names no fields; write them as"),
        (entry("path: a, format: tsv, columns: [de, no]"), "files.columns.1: False is no text; quote it"),
        (entry("path: a, format: jsonl, columns: {no: nb, en: en}"), "files.columns: False is no text; quote it"),
        (entry("path: a, format: tsv, columns: [de, german]"), "'german' is not of BCP-47 form"),
        (entry("path: a, format: tsv, columns: [de, de]"), "several fields are de; keep one of them"),
        (entry("path: a, format: tsv, columns: [de, document]"), "columns hold one language, or none; parallel text"),
        (entry("path: a, format: tsv, columns: [de, fr], pair: de-en"), "pair de-en is not among its columns, de, fr"),
        (entry("path: a, format: tsv, pair: de-en, dataset: b"), "tsv reads files and takes no dataset; remove it"),
        (
            entry("path: a, format: tsv, pair: de-en, where: {x: true}"),
            "tsv reads all rows; remove where, or choose rows of a data set",
        ),
        (entry("format: huggingface, dataset: a, where: {x: [1]}"), r"files.where.x: \[1\] is no text; quote it"),
        (
            entry("path: a, format: tsv, pair: de-en, streaming: yes please"),
            r"files\[0\].streaming='yes please' must be of type bool",
        ),
        (entry("path: a, format: tsv, pair: de-en, name: Euro parl"), "name 'Euro parl' is no word; use letters"),
        (entry("path: a, format: tsv, pair: de-en, name: ."), r"name '\.' is no word; use letters"),
        (entry("path: a, format: tsv, pair: de-en, tag: <bt>"), "tag '<bt>' is no marker; use lower-case letters"),
        (entry("path: a, format: tsv, pair: de-en, archive: ../b.tar"), "leaves the corpus directory; move the file"),
        (entry("path: 's3://x/a', format: tsv, pair: de-en"), "a URL of s3 cannot be read; use https, http, file"),
        (
            entry("path: a, format: tmy, pair: de-en"),
            r"manifest.yaml: files: format 'tmy' is unknown; did you mean tmx",
        ),
        (
            entry("format: mtdata, source: a"),
            "files: a: format mtdata takes a dataset and no path; name one, as Statmt",
        ),
        (
            entry("path: a, format: tsv, pair: de-en, sha256: 000"),
            r"files\[0\].sha256=0 must be of type str or list, not int; quote it",
        ),
        (
            entry("path: a, format: tsv, pair: de-en, licence: 4"),
            r"files\[0\].licence=4 must be of type str, not int; quote it",
        ),
    ],
)
def test_wrong_manifest_names_file_field_and_remedy(make_corpus: Make, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"manifest\.yaml: .*") as caught:
        read_manifest(make_corpus({"manifest.yaml": text}))
    caught.match(message)


_ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.dates(), st.text(max_size=4),
              st.sampled_from(["de", "en", "de-en", "train", "tsv", "aligned", "document", "a", "{src}", "no"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
_FIELDS = ("split", "format", "path", "source", "target", "pair", "columns", "name", "sha256", "rows", "streaming",
           "tag", "archive", "dataset", "revision", "where")  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["codes", "title", "default_target"]), _ANY, max_size=1),
    st.fixed_dictionaries({"split": st.just("dev"), "format": st.sampled_from([*FORMATS, "elsewhere"])})
    .flatmap(lambda fixed: st.dictionaries(st.sampled_from(_FIELDS), _ANY, max_size=5).map(lambda d: {**fixed, **d})),
)  # fmt: skip
def test_any_entry_is_read_or_is_an_error_that_names_the_manifest(more: dict[str, Any], item: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "manifest.yaml"
        path.write_text(yaml.safe_dump({"name": "x", "files": [item], **more}), encoding="utf-8")
        try:
            manifest = read_manifest(Path(directory))
        except ValueError as error:
            message = str(error)
        else:
            message = str(path) if len(manifest.files) == 1 else ""
    assert str(path) in message


def test_pair_of_a_manifest_uses_its_codes(make_corpus: Make) -> None:
    entry = "{split: dev, source: a, target: b, format: aligned, pair: 'cn:en'}"
    manifest = read_manifest(make_corpus({"manifest.yaml": f"name: x\ncodes: {{cn: zh-Hans}}\nfiles: [{entry}]\n"}))
    assert manifest.files[0].pair == LangPair("zh-Hans", "en")
    assert manifest.files[0].paths == ("a", "b")


def test_every_field_of_an_entry(make_corpus: Make) -> None:
    manifest = read_manifest(
        make_corpus({
            "manifest.yaml": """
name: mine
codes: {cn: zh-Hans}
files:
  - {split: train, path: a.tsv.gz, format: tsv, columns: [cn, null, "en", document], name: web-1.0, tag: bt,
     licence: CC0-1.0, citation: Someone, archive: "https://example.org/a.tar", sha256: ABC, rows: 3}
  - {split: dev, path: ["http://example.org/a", "file:///b"], format: aligned, pair: "cn:en", name: other}
  - {split: test, path: c.jsonl, format: jsonl, columns: {translation.cn: cn, translation.en: "en", id: document}}
  - {split: test, format: huggingface, dataset: who/what, config: c, part: validation, revision: r, streaming: true,
     where: {bad: false, level: 2, kind: news}}
"""
        })
    )  # fmt: skip
    assert manifest.files == (
        FileEntry(
            split="train", format="tsv", paths=("a.tsv.gz",), source="web-1.0", tag="bt", licence="CC0-1.0",
            columns={"0": "zh-Hans", "2": "en", "3": "document"}, citation="Someone", sha256=("abc",), rows=3,
            archive="https://example.org/a.tar",
        ),
        FileEntry(
            split="dev", format="aligned", paths=("http://example.org/a", "file:///b"), source="other",
            pair=LangPair("zh-Hans", "en"),
        ),
        FileEntry(
            split="test", format="jsonl", paths=("c.jsonl",),
            columns={"translation.cn": "zh-Hans", "translation.en": "en", "id": "document"},
        ),
        FileEntry(
            split="test", format="huggingface", dataset="who/what", config="c", part="validation", revision="r",
            streaming=True, where={"bad": "false", "level": "2", "kind": "news"},
        ),
    )  # fmt: skip
    assert [is_url(path) for path in (*manifest.files[1].paths, "a/b")] == [True, True, False]


def test_templates_are_checked_when_their_languages_are_known(make_corpus: Make) -> None:
    texts = ["path: '{src}.tsv', format: tsv", "path: a, format: jsonl, columns: {'{src}': '{src}', '{tgt}': '{tgt}'}"]
    for number, text in enumerate(texts):
        (file,) = read_manifest(make_corpus({"manifest.yaml": entry(text)}, str(number))).files
        assert file.template
    assert not FileEntry(split="train", format="tsv", paths=("{a}.tsv",)).template


def test_missing_directory_and_unknown_format(tmp_path: Path, make_corpus: Make) -> None:
    with pytest.raises(ValueError, match=r"corpus.path=.*nowhere is not .* a corpus: CORPUS=path/to/dir$"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"nowhere: cannot be read \(No such file or directory\); correct its path"):
        read_manifest(tmp_path, tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"format 'tmy' is unknown; did you mean tmx\? \(the formats are tsv"):
        open_table([], FileEntry(split="dev", format="tmy", paths=("a",)), {})


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_reader(name: str) -> None:
    assert FORMATS[name].load_reader().__name__ == FORMATS[name].reader.rpartition(".")[2]
