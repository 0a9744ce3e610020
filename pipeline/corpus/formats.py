"""What an entry of each local format must say, so that a manifest is checked before any file is read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.corpus.manifest import FileEntry


@dataclass(frozen=True, kw_only=True)
class Needs:
    """num_paths: 1 for path, 2 for source and target. pair, columns: what says which languages there are; either does
    where both may be given. numbered: columns are numbers from 0, not names.
    """

    num_paths: int = 1
    pair: bool = False
    columns: bool = False
    numbered: bool = False


NEEDS = {
    "tsv": Needs(pair=True, columns=True, numbered=True),
    "multiway_tsv": Needs(),
    "aligned": Needs(num_paths=2, pair=True),
    "tmx": Needs(pair=True, columns=True),
    "jsonl": Needs(pair=True, columns=True),
    "parquet": Needs(pair=True, columns=True),
}


def check_entry(entry: "FileEntry") -> None:
    """Raises ValueError for an entry of a local format that says too little, or what does not go together."""
    needs = NEEDS.get(entry.format)
    if needs is None:
        return
    where = f"{', '.join(entry.paths) or 'an entry'}: format {entry.format}"
    if len(entry.paths) != needs.num_paths:
        what = "source and target" if needs.num_paths == 2 else "one path"
        raise ValueError(f"{where} takes {what}, not {len(entry.paths)} files; correct the entry")
    if needs.numbered:
        for field in entry.columns:
            if not field.isdecimal():
                raise ValueError(f'{where}: columns: field {field!r} is no number from 0; write it as {{0: "de"}}')
    if needs.pair and entry.pair is None and not (needs.columns and entry.columns):
        if not needs.columns:
            raise ValueError(f"{where} needs the pair of its files; add one, as pair: de-en")
        example = '{0: "de", 1: "en"}' if needs.numbered else '{german: "de", english: "en"}'
        raise ValueError(f"{where} needs its languages; add them, as pair: de-en, or as columns: {example}")
