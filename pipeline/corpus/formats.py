"""What an entry of each local format must say, so that a manifest is checked before any file is read."""

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.corpus.fetched import DOCUMENT

if TYPE_CHECKING:
    from pipeline.corpus.manifest import FileEntry

_ELSEWHERE = ("dataset", "config", "part", "revision", "streaming")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """num_paths: 1 for path, 2 for source and target. languages: whether pair or columns must say them. columns:
    whether they may be given. numbered: whether fields are numbers from 0, not names.
    """

    num_paths: int = 1
    languages: bool = True
    columns: bool = True
    numbered: bool = False


NEEDS = {
    "tsv": Needs(numbered=True),
    "multiway_tsv": Needs(languages=False),
    "aligned": Needs(num_paths=2, columns=False),
    "tmx": Needs(),
    "jsonl": Needs(),
    "parquet": Needs(),
}

FROM_ELSEWHERE = ("huggingface", "mtdata")  # of pipeline.corpus.sources


def check_entry(entry: "FileEntry") -> None:
    """Raises ValueError for an unknown format, and for an entry of a local one that says too little, or what does not
    go together."""
    needs = NEEDS.get(entry.format)
    if entry.format in FROM_ELSEWHERE:
        return
    if needs is None:
        known = (*NEEDS, *FROM_ELSEWHERE)
        nearest = difflib.get_close_matches(entry.format, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(f"files: format {entry.format!r} is unknown{hint} (the formats are {', '.join(known)})")
    where = f"files: {entry.label}: format {entry.format}"
    if len(entry.paths) != needs.num_paths:
        what = "source and target" if needs.num_paths == 2 else "one path"
        raise ValueError(f"{where} takes {what}, not {len(entry.paths)} files; correct the entry")
    for key in _ELSEWHERE:
        if getattr(entry, key):
            raise ValueError(f"{where} reads files and takes no {key}; remove it, or correct the format")
    if entry.columns:
        _check_columns(where, entry, needs)
    if not entry.template:
        _check_languages(where, entry, needs)


def _check_columns(where: str, entry: "FileEntry", needs: Needs) -> None:
    if not needs.columns:
        raise ValueError(f"{where} takes no columns; remove them, pair says what the files hold")
    if needs.numbered:
        for field in entry.columns:
            if not (field.isascii() and field.isdecimal()):
                raise ValueError(f'{where}: columns: field {field!r} is no number from 0; write it as {{0: "de"}}')


def _check_languages(where: str, entry: "FileEntry", needs: Needs) -> None:
    if not needs.languages and entry.pair is not None:
        raise ValueError(f"{where} takes no pair; remove it, the first line of the file holds the languages")
    if needs.languages and entry.pair is None and not entry.columns:
        if not needs.columns:
            raise ValueError(f"{where} needs the pair of its files; add one, as pair: de-en")
        example = '{0: "de", 1: "en"}' if needs.numbered else '{german: "de", english: "en"}'
        raise ValueError(f"{where} needs its languages; add them, as pair: de-en, or as columns: {example}")
    if entry.columns:
        codes = [column for column in entry.columns.values() if column != DOCUMENT]
        if len(codes) < 2:
            raise ValueError(f"{where}: columns hold one language, or none; parallel text needs two")
        if entry.pair is not None and not {entry.pair.src, entry.pair.tgt} <= set(codes):
            raise ValueError(f"{where}: pair {entry.pair} is not among its columns, {', '.join(codes)}; correct either")
