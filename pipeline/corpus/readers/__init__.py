"""Readers of the formats that a corpus may have; a format is one function and one line of FORMATS."""

import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pipeline.corpus.formats import check_entry
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers.aligned import read_aligned
from pipeline.corpus.readers.jsonl import read_jsonl
from pipeline.corpus.readers.parquet import read_parquet
from pipeline.corpus.readers.tmx import read_tmx
from pipeline.corpus.readers.tsv import read_multiway_tsv, read_tsv
from pipeline.corpus.tables import Table

Reader = Callable[[Sequence[Path], FileEntry, Mapping[str, str]], Table]

FORMATS: dict[str, Reader] = {
    "multiway_tsv": read_multiway_tsv,
    "aligned": read_aligned,
    "tsv": read_tsv,
    "tmx": read_tmx,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
}


def open_table(paths: Sequence[Path], entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Table of one entry of a manifest, whose files are at `paths` on this machine.

    Raises ValueError for an unknown format, a missing file and whatever the head of the file shows; its batches raise
    ValueError, naming file and line, for every other fault.
    """
    check_entry(entry)
    for path in paths:
        _check_file(path)
    return FORMATS[entry.format](paths, entry, renames)


def _check_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"{path} does not exist; put the file there or take it out of the manifest") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); check its name and its permissions") from error
    if stat.S_ISDIR(mode):
        raise ValueError(f"{path} is a directory; name the file in it")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is no file but a device or a pipe; write its content to a file")
