"""Readers of the formats of files; `pipeline.corpus.formats` lists them."""

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.corpus.formats import FORMATS, check_entry
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.tables import Table


def open_table(paths: Sequence[Path], entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Return the table of one entry of a manifest.

    paths: the files of the entry on this machine.
    renames: the manifest's `codes`.
    Raises ValueError for an unknown format, a missing file and any fault in the head of the file. The batches of the
    table raise ValueError, with file and line, for every other fault.
    """
    check_entry(entry)
    for path in paths:
        _check_file(path)
    table: Table = FORMATS[entry.format].load_reader()(paths, entry, renames)
    return table


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
