import gzip
import importlib.util
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.sources.download import Patience
from pipeline.corpus.sources.mtdata_index import find_recipe, open_mtdata
from tests.unit.corpus.sources.file_server import Site, serve

INSTALLED = importlib.util.find_spec("mtdata") is not None
LINES = "Guten Tag\tGood day\textra\n\tnothing\nAuf Wiedersehen\tGood bye\textra\n"


def entry(dataset: str, **fields: object) -> FileEntry:
    return FileEntry(split="train", format="mtdata", dataset=dataset, **fields)


@pytest.mark.skipif(INSTALLED, reason="shows what happens without mtdata")
def test_the_package_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTDATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"needs the package mtdata, .*install it, as .*pip install 'mtdata=="):
        open_mtdata(entry("Statmt-news_commentary-16-deu-eng"), tmp_path, tmp_path / "cache", {})


def test_a_data_set_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format mtdata takes a dataset and no path"):
        open_mtdata(entry(""), tmp_path, tmp_path / "cache", {})


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The real index of the package, with data sets of this test in it, which a server on this machine has."""
    os.environ.setdefault("MTDATA", str(tmp_path_factory.mktemp("mtdata")))
    from mtdata.entry import Entry
    from mtdata.index import INDEX

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for name, text in (("x/a.de", "eins\nzwei\n"), ("x/a.en", "one\ntwo\n")):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            file.addfile(info, io.BytesIO(text.encode()))
    files = {
        "/lines.tsv.gz": gzip.compress(LINES.encode()),
        "/a.de": b"eins\nzwei\n",
        "/a.en": b"one\n",
        "/a.tgz": packed.getvalue(),
    }
    with serve(Site(files=files)) as site:
        cite = ("Ye2018WordEmbeddings",)
        for record in (
            Entry("Own-lines-1-deu-eng", url=f"{site.url}/lines.tsv.gz", cite=cite),
            Entry("Own-uneven-1-deu-eng", url=(f"{site.url}/a.de", f"{site.url}/a.en"), ext="txt"),
            Entry(
                "Own-packed-1-zho-eng", url=f"{site.url}/a.tgz", ext="tgz", in_paths=["x/a.de", "x/a.en"], in_ext="txt"
            ),
            Entry("Own-gone-1-deu-eng", url=f"{site.url}/gone.tsv"),
        ):
            if record.did not in INDEX:
                INDEX.add_entry(record)
            INDEX.entries[record.did] = record
        yield site


@pytest.mark.skipif(not INSTALLED, reason="needs mtdata")
class TestIndex:
    def test_rows_come_through_our_downloads(self, tmp_path: Path, index: Site) -> None:
        index.requests.clear()
        index.faults["/lines.tsv.gz"] = ["cut"]
        record = entry("Own-lines-1-eng-deu", pair=LangPair("en", "de"))
        table = open_mtdata(record, tmp_path, tmp_path / "cache", {}, patience=Patience(pause=0.01))
        assert table.columns == ("de", "en")
        rows = [row for batch in table.batches for row in batch.to_pylist()]
        assert rows == [{"de": "Guten Tag", "en": "Good day"}, {"de": "Auf Wiedersehen", "en": "Good bye"}]
        assert len(index.requests) == 2
        assert "Ye2018WordEmbeddings" in find_recipe(record).citation

    def test_archives_and_codes(self, tmp_path: Path, index: Site) -> None:
        for fields, codes in (
            ({"pair": LangPair("zh-Hans", "en")}, ("zh-Hans", "en")),
            ({"columns": {"zho": "zh-Hant"}}, ("zh-Hant", "en")),
            ({}, ("zh", "en")),
        ):
            table = open_mtdata(entry("Own-packed-1-zho-eng", **fields), tmp_path, tmp_path / "cache", {})
            assert table.columns == codes
            assert [batch.num_rows for batch in table.batches] == [2]
        record = entry("Own-packed-1-zho-eng", pair=LangPair("de", "en"))
        with pytest.raises(ValueError, match="holds zho and eng, not the pair de-en; correct either, or say which"):
            open_mtdata(record, tmp_path, tmp_path / "cache", {})

    def test_faults(self, tmp_path: Path, index: Site) -> None:
        table = open_mtdata(entry("Own-uneven-1-deu-eng"), tmp_path, tmp_path / "cache", {})
        with pytest.raises(ValueError, match=r"Own-uneven-1-deu-eng: cannot be read after row 1 of .*unequal number"):
            list(table.batches)
        for dataset, message in (
            ("Own-lines-2-deu-eng", "did you mean Own-lines-1-deu-eng"),
            ("lines", "is not of the form Group-name-version-deu-eng"),
            ("Google-wmt24pp-1-eng-deu_DE", "is on a hub; read it as format: huggingface, dataset: google/wmt24pp"),
            ("Own-gone-1-deu-eng", "gone.tsv: answered 404"),
        ):
            with pytest.raises(ValueError, match=message):
                open_mtdata(entry(dataset), tmp_path, tmp_path / "cache", {})

    def test_a_real_record(self, tmp_path: Path, index: Site) -> None:
        recipe = find_recipe(entry("Statmt-news_commentary-16-eng-deu"))
        assert recipe.languages == ("deu", "eng")
        assert "@inproceedings{kocmi-etal-2023-findings" in recipe.citation
