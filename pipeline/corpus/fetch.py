"""First stage: one entry of a manifest, checked and written as a table of columns."""

from pathlib import Path

from pipeline.corpus.fetched import FetchedTable, write_tables
from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.corpus.readers import open_table
from pipeline.corpus.sources.credits import credit
from pipeline.corpus.sources.locate import locate
from pipeline.corpus.tables import Table, write_table

_TABLE = "table.parquet"


def fetch(entry: FileEntry, manifest: Manifest, *, files: Path, cache: Path, out: Path) -> None:
    """Read an entry to its end and write `table.parquet`, with a `tables.json` about it, to `out`.

    files: directory of the corpus. cache: keeps what is downloaded. Raises ValueError, naming file and line, for what
    cannot be had, a wrong checksum or row count, any fault of the text, and files that are empty or one-sided.
    """
    table, listed = _open(entry, manifest, files, cache)
    info = write_table(table, out / _TABLE)
    if info.rows == 0:
        raise ValueError(f"{listed}: empty, without a single row; add rows or take it out of the corpus")
    if entry.rows is not None and entry.rows != info.rows:
        raise ValueError(
            f"{listed}: {info.rows} rows where the manifest says {entry.rows}; fetch the file again, or correct rows"
        )
    if sum(count > 0 for count in info.filled.values()) < 2:
        empty = ", ".join(code for code, count in info.filled.items() if count == 0)
        raise ValueError(f"{listed}: one-sided, every row is empty in {empty}; add the translations")
    origin = credit(entry, manifest, files, cache)
    fetched = FetchedTable(
        path=out / _TABLE,
        split=entry.split,
        columns=table.columns,
        rows=info.rows,
        filled=info.filled,
        source=entry.source or manifest.name,
        tag=entry.tag,
        licence=origin.licence,
        citation=origin.citation,
        commit=origin.commit,
    )
    write_tables([fetched], out)


def _open(entry: FileEntry, manifest: Manifest, files: Path, cache: Path) -> tuple[Table, str]:
    """The rows of an entry, and what to call them in messages."""
    if entry.format == "huggingface":
        from pipeline.corpus.sources.hub_tables import open_dataset

        return open_dataset(entry, files, cache, manifest.codes), f"{entry.dataset} {entry.config} {entry.part}"
    if entry.format == "mtdata":
        from pipeline.corpus.sources.mtdata_index import open_mtdata

        return open_mtdata(entry, files, cache, manifest.codes), entry.dataset
    paths = locate(entry, files, cache)
    return open_table(paths, entry, manifest.codes), " and ".join(map(str, paths))
