"""First stage: the files of a corpus, checked and copied, and the way to read them afterwards."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import NOTICE, SPLITS, FileEntry, read_manifest

if TYPE_CHECKING:
    from pipeline.corpus.tables import Table

CORPUS = "corpus.json"
_FILES = "files"  # directory of the copies


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """One entry of a fetched corpus and what it holds."""

    entry: FileEntry
    columns: tuple[str, ...]  # BCP-47 codes
    filled: Mapping[str, int]  # code -> rows whose cell is not empty


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A fetched corpus; every method streams from its files."""

    directory: Path
    name: str
    title: str
    licence: str
    citation: str
    notice: str
    default_target: str | None
    codes: tuple[str, ...]  # sorted
    files: tuple[CorpusFile, ...]
    renames: Mapping[str, str]

    def has_pair(self, pair: LangPair) -> bool:
        """Whether some training file has both sides of the pair (it may still have no row with both)."""
        return any(True for _ in self._files_with("train", pair.src, pair.tgt))

    def rows(self, pair: LangPair, split: str) -> Iterator[tuple[str, str]]:
        """Source and target of every row of a split; of a multi-way table, of the rows that have both."""
        for file in self._files_with(split, pair.src, pair.tgt):
            src, tgt = file.columns.index(pair.src), file.columns.index(pair.tgt)
            for cells in _rows(self.directory / _FILES, file.entry, self.renames):
                if cells[src] is not None and cells[tgt] is not None:
                    yield cells[src], cells[tgt]

    def texts(self, code: str, split: str) -> Iterator[str]:
        """Every text of one language in a split, whatever it is paired with; empty ones are left out."""
        for file in self._files_with(split, code):
            column = file.columns.index(code)
            for cells in _rows(self.directory / _FILES, file.entry, self.renames):
                if cells[column]:
                    yield cells[column]

    def _files_with(self, split: str, *codes: str) -> Iterator[CorpusFile]:
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is none of {', '.join(SPLITS)}; choose one of them")
        for code in codes:
            if code not in self.codes:
                raise ValueError(f"corpus {self.name} has no {code!r}; it has {', '.join(self.codes)}")
        return (f for f in self.files if f.entry.split == split and all(code in f.columns for code in codes))


def fetch(*, source: Path, out: Path) -> None:
    """Check the corpus in `source` and copy it to `out`, with its notice and a `corpus.json` about it.

    Raises ValueError, naming file and line, for a wrong checksum or row count, text that is not UTF-8,
    aligned files of different length, and files that are empty or one-sided.
    """
    manifest = read_manifest(source)
    files = [_check(source, entry, manifest.codes) for entry in manifest.files]
    codes = sorted({code for file in files for code in file.columns})
    default_target = manifest.default_target or ("en" if "en" in codes else None)
    if default_target is not None and default_target not in codes:
        raise ValueError(f"{source}: default_target {default_target} is none of the codes {', '.join(codes)}")
    for file in files:
        for name in file.entry.paths:
            copy = out / _FILES / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, copy)
    notice = ""
    if (source / NOTICE).is_file():
        notice = (source / NOTICE).read_text(encoding="utf-8")
        shutil.copyfile(source / NOTICE, out / NOTICE)
    content = {
        "name": manifest.name,
        "title": manifest.title,
        "licence": manifest.licence,
        "citation": manifest.citation,
        "notice": notice,
        "default_target": default_target,
        "codes": codes,
        "renames": dict(manifest.codes),
        "files": [_to_json(file) for file in files],
    }
    (out / CORPUS).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_corpus(directory: Path) -> Corpus:
    """Corpus that `fetch` left in `directory`."""
    content = json.loads((directory / CORPUS).read_text(encoding="utf-8"))
    return Corpus(
        directory=directory,
        files=tuple(_from_json(item) for item in content.pop("files")),
        codes=tuple(content.pop("codes")),
        **content,
    )


def _check(source: Path, entry: FileEntry, renames: Mapping[str, str]) -> CorpusFile:
    """Read one entry to its end. Raises ValueError for any fault of it."""
    table = _open(source, entry, renames)
    digests = []
    for i, name in enumerate(entry.paths):
        with (source / name).open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        if entry.sha256 and entry.sha256[i] != digests[i]:
            raise ValueError(
                f"{source / name}: sha256 is {digests[i]} where the manifest says {entry.sha256[i]}; "
                "fetch the file again, or correct the manifest if the change is meant"
            )
    filled = dict.fromkeys(table.columns, 0)
    num_rows = 0
    for cells in _cells(table):
        num_rows += 1
        for code, cell in zip(table.columns, cells, strict=True):
            filled[code] += bool(cell and cell.strip())
    listed = " and ".join(str(source / name) for name in entry.paths)
    if num_rows == 0:
        raise ValueError(f"{listed}: empty, without a single row; add rows or take it out of the corpus")
    if entry.rows is not None and entry.rows != num_rows:
        raise ValueError(
            f"{listed}: {num_rows} rows where the manifest says {entry.rows}; fetch the file again, or correct rows"
        )
    if sum(count > 0 for count in filled.values()) < 2:
        empty = ", ".join(code for code, count in filled.items() if count == 0)
        raise ValueError(f"{listed}: one-sided, every row is empty in {empty}; add the translations")
    checked = FileEntry(
        split=entry.split,
        format=entry.format,
        paths=entry.paths,
        pair=entry.pair,
        sha256=tuple(digests),
        rows=num_rows,
    )
    return CorpusFile(entry=checked, columns=table.columns, filled=filled)


def _open(directory: Path, entry: FileEntry, renames: Mapping[str, str]) -> "Table":
    from pipeline.corpus.readers import open_table

    return open_table([directory / name for name in entry.paths], entry, renames)


def _rows(directory: Path, entry: FileEntry, renames: Mapping[str, str]) -> Iterator[Any]:
    return _cells(_open(directory, entry, renames))


def _cells(table: "Table") -> Iterator[Any]:
    for batch in table.batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _to_json(file: CorpusFile) -> dict[str, Any]:
    entry = file.entry
    return {
        "split": entry.split,
        "format": entry.format,
        "paths": entry.paths,
        "pair": [entry.pair.src, entry.pair.tgt] if entry.pair else None,
        "sha256": entry.sha256,
        "rows": entry.rows,
        "columns": file.columns,
        "filled": dict(file.filled),
    }


def _from_json(item: dict[str, Any]) -> CorpusFile:
    entry = FileEntry(
        split=item["split"],
        format=item["format"],
        paths=tuple(item["paths"]),
        pair=LangPair(*item["pair"]) if item["pair"] else None,
        sha256=tuple(item["sha256"]),
        rows=item["rows"],
    )
    return CorpusFile(entry=entry, columns=tuple(item["columns"]), filled=item["filled"])
