"""Licence and citation of the rows of an entry."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.corpus.sources.cards import read_card


@dataclass(frozen=True, kw_only=True)
class Credit:
    """Licence and citation, empty if they are unknown. commit: commit of a hub's data set, to fetch it again."""

    licence: str
    citation: str
    commit: str = ""


def credit(entry: FileEntry, manifest: Manifest, files: Path, cache: Path) -> Credit:
    """Return the credit from the entry, or else its manifest, or else the card of the data set or mtdata's index.

    Call it after the rows are read, when the card is on this machine. Raises ValueError as the reader of the entry.
    """
    licence, citation, commit = entry.licence or manifest.licence, entry.citation or manifest.citation, ""
    if entry.format == "huggingface":
        if (files / entry.dataset).is_dir():
            card = read_card(files / entry.dataset)
        else:
            from pipeline.corpus.sources.hub import data_files

            data_set = data_files(entry, files, cache)
            card, commit = data_set.card, data_set.commit
        licence, citation = licence or card.licence, citation or card.citation
    elif entry.format == "mtdata" and not citation:
        from pipeline.corpus.sources.mtdata_index import find_recipe

        citation = find_recipe(entry).citation
    return Credit(licence=licence, citation=citation, commit=commit)
