"""First stage: one entry of a manifest, checked and written as a table of columns."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pipeline.corpus.fetched import FetchedTable, write_tables
from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.corpus.readers import open_table
from pipeline.corpus.tables import write_table

_TABLE = "table.parquet"


def fetch(entry: FileEntry, manifest: Manifest, *, files: Path, out: Path) -> None:
    """Read an entry to its end and write `table.parquet`, with a `tables.json` about it, to `out`.

    files: directory of the corpus. Raises ValueError, naming file and line, for a wrong checksum or row count, any
    fault of the text, and files that are empty or one-sided.
    """
    paths = [files / name for name in entry.paths]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} does not exist; put the file there or take it out of the manifest")
    _check_sums(entry, paths)
    table = open_table(paths, entry, manifest.codes)
    info = write_table(table, out / _TABLE)
    listed = " and ".join(map(str, paths))
    if info.rows == 0:
        raise ValueError(f"{listed}: empty, without a single row; add rows or take it out of the corpus")
    if entry.rows is not None and entry.rows != info.rows:
        raise ValueError(
            f"{listed}: {info.rows} rows where the manifest says {entry.rows}; fetch the file again, or correct rows"
        )
    if sum(count > 0 for count in info.filled.values()) < 2:
        empty = ", ".join(code for code, count in info.filled.items() if count == 0)
        raise ValueError(f"{listed}: one-sided, every row is empty in {empty}; add the translations")
    fetched = FetchedTable(
        path=out / _TABLE,
        split=entry.split,
        columns=table.columns,
        rows=info.rows,
        filled=info.filled,
        source=entry.source or manifest.name,
        tag=entry.tag,
        licence=entry.licence or manifest.licence,
        citation=entry.citation or manifest.citation,
    )
    write_tables([fetched], out)


def _check_sums(entry: FileEntry, paths: Sequence[Path]) -> None:
    for path, expected in zip(paths, entry.sha256, strict=False):
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise ValueError(
                f"{path}: sha256 is {found} where the manifest says {expected}; "
                "fetch the file again, or correct the manifest if the change is meant"
            )
