"""The first stage: read one entry of a manifest, check it, and write it as a table of columns."""

from pathlib import Path

from pipeline.corpus.cleaning.swapped import checked_order
from pipeline.corpus.fetched import FetchedTable, write_tables
from pipeline.corpus.formats import FORMATS, check_entry
from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.corpus.readers import open_table
from pipeline.corpus.sources.credits import credit
from pipeline.corpus.sources.locate import locate
from pipeline.corpus.tables import Table, write_table

_TABLE = "table.parquet"


def fetch(entry: FileEntry, manifest: Manifest, *, files: Path, cache: Path, out: Path) -> None:
    """Read an entry to its end, and write `table.parquet` and its description `tables.json` to `out`.

    files: directory of the corpus.
    cache: directory that keeps downloads.
    Raises ValueError, with file and line, for files that cannot be read, a wrong checksum or number of rows, any fault
    of the text, files that are empty or have one side alone, and two languages that are exchanged.
    """
    table, name = _open(entry, manifest, files, cache)
    info = write_table(checked_order(table, name), out / _TABLE)
    if info.rows == 0:
        raise ValueError(f"{name}: empty, without a single row; add rows or take it out of the corpus")
    if entry.rows is not None and entry.rows != info.rows:
        raise ValueError(
            f"{name}: {info.rows} rows where the manifest says {entry.rows}; fetch the file again, or correct rows"
        )
    if sum(count > 0 for count in info.filled.values()) < 2:
        empty = ", ".join(code for code, count in info.filled.items() if count == 0)
        raise ValueError(f"{name}: one-sided, every row is empty in {empty}; add the translations")
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
    """Return the rows of an entry, and their name for messages."""
    check_entry(entry)
    source = FORMATS[entry.format]
    if source.needs.dataset:
        name = " ".join(filter(None, (entry.dataset, entry.config, entry.part)))
        return source.load_reader()(entry, files, cache, manifest.codes), name
    paths = locate(entry, files, cache)
    return open_table(paths, entry, manifest.codes), " and ".join(map(str, paths))
