"""Writes the corpus: files laid out as the original is, a manifest of their own, counts and checksums of the text."""

import csv
import hashlib
import lzma
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from .download import HERE, sha256
from .rows import Row
from .sources import ORDER

ORIGINAL = HERE.parent / "manifest.yaml"
# BCP-47 where the packages' codes are others.
CODES = {"zh_CN": "zh-Hans", "zh_TW": "zh-Hant", "pt_BR": "pt-BR", "sr@latin": "sr-Latn"}


class Result(NamedTuple):
    """A file that was written. sha256: that of its text, before compression."""

    path: str
    rows: int
    sha256: str


class Writer:
    """A writer of the files of a corpus, which collects their entries for the manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results: list[Result] = []
        self.entries: list[dict[str, object]] = []
        self.counts: list[list[str]] = []

    def write(self, path: str, lines: Iterable[Sequence[str]], rows_before: int = 0) -> Result:
        """Write lines of tab-separated fields; rows_before is the number of header lines among them."""
        text = "".join("\t".join(fields) + "\n" for fields in lines).encode()
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(lzma.compress(text, preset=6) if path.endswith(".xz") else text)
        result = Result(path, text.count(b"\n") - rows_before, hashlib.sha256(text).hexdigest())
        self.results.append(result)
        return result

    def add_entry(self, split: str, result: Result, file_format: str, columns: list[str] | None = None) -> None:
        """Record a file for the manifest."""
        entry: dict[str, object] = {"split": split, "path": result.path, "format": file_format}
        if columns:
            entry["columns"] = columns
        self.entries.append({**entry, "rows": result.rows, "sha256": sha256(self.folder / result.path)})

    def write_train(self, language: str, rows: Sequence[Row], test: str) -> None:
        """Write the training rows of a language. test: kind and size of its test set, for counts.tsv."""
        lines = ([row.foreign, row.english, f"{row.source}:{row.document}"] for row in rows)
        result = self.write(f"train/{language}-en.tsv.xz", lines)
        self.add_entry("train", result, "tsv", [CODES.get(language, language), "en", "document"])
        sources = Counter(row.source for row in rows)
        by_source = " ".join(f"{source}={sources[source]}" for source in ORDER if sources[source])
        self.counts.append([language, str(len(rows)), by_source, test])

    def write_multiway(self, split: str, languages: Sequence[str], table: Sequence[Sequence[str]]) -> None:
        """Write the multi-way table of a split, whose first line holds the codes."""
        result = self.write(f"multiway.{split}.tsv", [["en", *languages], *table], rows_before=1)
        self.add_entry(split, result, "multiway_tsv")

    def write_tail(self, split: str, language: str, rows: Sequence[Row]) -> None:
        """Write a development or test set of one pair."""
        result = self.write(f"tail/{split}.{language}-en.tsv", ([row.foreign, row.english] for row in rows))
        self.add_entry(split, result, "tsv", [CODES.get(language, language), "en"])

    def finish(self) -> None:
        """Write manifest.yaml, counts.tsv and results.tsv."""
        manifest = yaml.safe_load(ORIGINAL.read_text(encoding="utf-8"))
        manifest["files"] = self.entries
        text = yaml.safe_dump(manifest, allow_unicode=True, sort_keys=False, width=120)
        (self.folder / "manifest.yaml").write_text(text, encoding="utf-8")
        self.counts.sort(key=lambda line: -int(line[1]))
        write_table(self.folder / "counts.tsv", ["lang", "train_pairs", "by_source", "test"], self.counts)
        write_results(self.folder / "results.tsv", self.results)


def write_table(path: Path, header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Write a tab-separated file with a header."""
    path.write_text("".join("\t".join(fields) + "\n" for fields in [header, *lines]), encoding="utf-8")


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Write path, rows and checksum of every file."""
    write_table(path, Result._fields, ([result.path, str(result.rows), result.sha256] for result in sorted(results)))


def read_results(path: Path) -> list[Result]:
    """Read the results that write_results() wrote."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [
            Result(line["path"], int(line["rows"]), line["sha256"]) for line in csv.DictReader(stream, delimiter="\t")
        ]


def differences(results: Iterable[Result], expected: Iterable[Result]) -> list[str]:
    """Return a line for each file that is not as expected, or missing, or new."""
    written = {result.path: result for result in results}
    lines = []
    for result in expected:
        new = written.pop(result.path, None)
        if new is None:
            lines.append(f"{result.path}: not made, {result.rows} rows are expected")
        elif new != result:
            lines.append(f"{result.path}: {new.rows} rows, {result.rows} are expected")
    return [*lines, *(f"{path}: {result.rows} rows, none are expected" for path, result in written.items())]
