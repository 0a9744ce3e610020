"""Under which licence the rows of an entry are, and who is to be cited for them."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.corpus.sources.cards import read_card


@dataclass(frozen=True, kw_only=True)
class Credit:
    """licence and citation: empty if nobody says. commit: of a data set of a hub, so that it can be had again."""

    licence: str
    citation: str
    commit: str = ""


def credit(entry: FileEntry, manifest: Manifest, files: Path, cache: Path) -> Credit:
    """What the entry says of its rows, or its manifest, or else the card of the data set or mtdata's index.

    To be asked after the rows are read: the card is then on this machine. Raises ValueError as the reader of the entry.
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
