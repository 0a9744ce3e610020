"""Formats of the entries of a manifest, each with its reader and with what an entry of it must say; light to import.

docs/extend.md says how to add a format.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipeline.corpus.fetched import DOCUMENT
from pipeline.spelling import did_you_mean

if TYPE_CHECKING:
    from pipeline.corpus.manifest import FileEntry

_DATASET_KEYS = ("dataset", "config", "part", "revision", "streaming")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The fields that an entry of a format must have, and those that it may have.

    num_paths: 1 for `path`, 2 for `source` and `target`, 0 if the entry names a data set in place of files.
    dataset: an example of a data set's name, for messages; empty for formats of files.
    languages: whether `pair` or `columns` must say the languages.
    columns: whether `columns` may be given.
    numbered: whether the fields of `columns` are numbers from 0, not names.
    where: whether `where` may choose rows.
    """

    num_paths: int = 1
    dataset: str = ""
    languages: bool = True
    columns: bool = True
    numbered: bool = False
    where: bool = False


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of the entries of a manifest.

    reader: module and name, below pipeline.corpus, of the function that returns an entry as a `Table`. It is imported
        when the first entry is read. It takes the paths of the files, the entry and the manifest's `codes`. A reader of
        data sets takes the entry, the directory of the corpus, that of downloads, and `codes`.
    needs: the fields that an entry must have.
    suffix: whether a file of a corpus without a manifest has this format if its name ends in the format's name.
    """

    reader: str
    needs: Needs
    suffix: bool = False

    def load_reader(self) -> Callable[..., Any]:
        """Return the function that reads the format."""
        module, _, name = self.reader.rpartition(".")
        reader: Callable[..., Any] = getattr(import_module(f"pipeline.corpus.{module}"), name)
        return reader


FORMATS = {
    "tsv": Format(reader="readers.tsv.read_tsv", needs=Needs(numbered=True), suffix=True),
    "multiway_tsv": Format(reader="readers.tsv.read_multiway_tsv", needs=Needs(languages=False)),
    "aligned": Format(reader="readers.aligned.read_aligned", needs=Needs(num_paths=2, columns=False)),
    "tmx": Format(reader="readers.tmx.read_tmx", needs=Needs(), suffix=True),
    "jsonl": Format(reader="readers.jsonl.read_jsonl", needs=Needs(), suffix=True),
    "parquet": Format(reader="readers.parquet.read_parquet", needs=Needs(), suffix=True),
    "huggingface": Format(
        reader="sources.hub_tables.open_dataset",
        needs=Needs(num_paths=0, dataset="Helsinki-NLP/opus-100", where=True),
    ),
    "mtdata": Format(
        reader="sources.mtdata_index.open_mtdata", needs=Needs(num_paths=0, dataset="Statmt-news_commentary-16-deu-eng")
    ),
}


def check_format(name: str) -> None:
    """Raise ValueError if no format has this name."""
    if name not in FORMATS:
        hint = did_you_mean(name, FORMATS)
        raise ValueError(f"files: format {name!r} is unknown{hint} (the formats are {', '.join(FORMATS)})")


def check_entry(entry: "FileEntry") -> None:
    """Raise ValueError for an unknown format, for fields that are missing and for fields that do not go together."""
    check_format(entry.format)
    needs = FORMATS[entry.format].needs
    where = f"files: {entry.label}: format {entry.format}"
    if entry.where and not needs.where:
        raise ValueError(f"{where} reads all rows; remove where, or choose rows of a data set, format: huggingface")
    if needs.dataset:
        if not entry.dataset or entry.paths or entry.archive:
            raise ValueError(f"{where} takes a dataset and no path; name one, as {needs.dataset}")
        return
    if len(entry.paths) != needs.num_paths:
        fields = "source and target" if needs.num_paths == 2 else "one path"
        raise ValueError(f"{where} takes {fields}, not {len(entry.paths)} files; correct the entry")
    for key in _DATASET_KEYS:
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
