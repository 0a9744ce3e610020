"""The preset freesoft38: its manifest, and files of the form of its own."""

import lzma
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from pipeline.corpus.manifest import FileEntry
from tests.unit.corpus.sources.test_presets import fetched, preset


class TestFreesoft38:
    def test_its_manifest(self) -> None:
        manifest = preset("freesoft38")
        train = [entry for entry in manifest.files if entry.split == "train"]
        codes = {code for entry in train for code in entry.columns.values()} - {"en", "document"}
        assert len(train) == len(codes) == 38
        assert sum(entry.rows or 0 for entry in train) == 1_749_635
        assert {"zh-Hans", "zh-Hant", "pt-BR", "sr", "sr-Latn"} <= codes
        tail = {code for entry in manifest.files if entry.format == "tsv" for code in entry.columns.values()}
        assert tail >= codes
        assert all(len(entry.sha256) == 1 and entry.rows for entry in manifest.files)
        for source in ("lohelp", "man", "wesnoth", "gnomehelp", "ddtp"):
            assert f"{source} (" in manifest.licence

    def test_files_of_its_form(self, tmp_path: Path) -> None:
        def sized(entry: FileEntry) -> FileEntry:
            return replace(entry, sha256=(), rows=None)

        manifest = preset("freesoft38")
        by_name = {entry.paths[0]: sized(entry) for entry in manifest.files}
        (tmp_path / "train").mkdir()
        (tmp_path / "tail").mkdir()
        line = "Guten Tag\tGood day\tlohelp:lo:a.html\n"
        (tmp_path / "train" / "sr@latin-en.tsv.xz").write_bytes(lzma.compress(line.encode() * 3))
        (tmp_path / "tail" / "test.sr@latin-en.tsv").write_text("Dobar dan\tGood day\n")
        (tmp_path / "multiway.dev.tsv").write_text("en\tpt_BR\tzh_TW\nday\tdia\t\n")
        for name, columns, row in (
            (
                "train/sr@latin-en.tsv.xz",
                ("sr-Latn", "en", "document"),
                {"sr-Latn": "Guten Tag", "en": "Good day", "document": "lohelp:lo:a.html"},
            ),
            ("tail/test.sr@latin-en.tsv", ("sr-Latn", "en"), {"sr-Latn": "Dobar dan", "en": "Good day"}),
            ("multiway.dev.tsv", ("en", "pt-BR", "zh-Hant"), {"en": "day", "pt-BR": "dia", "zh-Hant": None}),
        ):
            table = fetched(by_name[name], manifest, tmp_path, name.replace("/", "-"))
            assert table.columns == columns
            assert pq.read_table(table.path).to_pylist()[0] == row
