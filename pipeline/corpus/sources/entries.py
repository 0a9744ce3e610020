"""The rows of any entry of a manifest, wherever they come from."""

import difflib
from collections.abc import Mapping
from pathlib import Path

from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers import FORMATS, open_table
from pipeline.corpus.sources.download import Patience
from pipeline.corpus.sources.locate import locate
from pipeline.corpus.tables import Table

_ELSEWHERE = ("huggingface", "mtdata")


def open_entry(
    entry: FileEntry, files: Path, cache: Path, renames: Mapping[str, str], *, patience: Patience | None = None
) -> Table:
    """Table of an entry, which is no template.

    files: directory of the corpus. cache: keeps what is downloaded or taken out of archives. renames: the manifest's
    codes. Raises ValueError as `locate`, the readers of the formats, `open_dataset` and `open_mtdata` do.
    """
    if entry.format in _ELSEWHERE and (entry.paths or entry.archive):
        raise ValueError(f"files: {entry.label}: format {entry.format} takes a dataset and no path; remove the path")
    if entry.format == "huggingface":
        from pipeline.corpus.sources.hub_tables import open_dataset

        return open_dataset(entry, files, cache, renames, patience=patience)
    if entry.format == "mtdata":
        from pipeline.corpus.sources.mtdata_index import open_mtdata

        return open_mtdata(entry, files, cache, renames, patience=patience)
    if entry.format not in FORMATS:
        known = (*FORMATS, *_ELSEWHERE)
        nearest = difflib.get_close_matches(entry.format, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(f"files: format {entry.format!r} is unknown{hint} (the formats are {', '.join(known)})")
    return open_table(locate(entry, files, cache, patience=patience), entry, renames)
