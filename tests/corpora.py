"""Corpora through the product's own stages, for tests."""

from pathlib import Path
from typing import Any

from pipeline.corpora import Corpus, clean, prepare_corpus
from pipeline.corpus.bitext import read_bitext
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.fetched import FetchedTable
from pipeline.corpus.tables import read_batches
from pipeline.stage import Artifact, Store
from pipeline.tasks import DataConfig

Rows = list[tuple[str, str]]


def prepare(source: Path, pairs: str, store: Path, **config: Any) -> Corpus:
    """Fetch a corpus for some pairs, separated by spaces."""
    return prepare_corpus(CorpusConfig(path=str(source), **config), pairs.split(), Store(store), DataConfig())


def clean_pair(source: Path, pair: str, store: Path, *, rules: Rules | None = None, **config: Any) -> Artifact:
    """Cleaned rows of one pair of a corpus."""
    corpus_config = CorpusConfig(path=str(source), rules=rules or Rules(), **config)
    artifacts = Store(store)
    corpus = prepare_corpus(corpus_config, [pair], artifacts, DataConfig())
    return clean(corpus_config, artifacts, corpus, corpus.pairs[0], DataConfig())


def bitext_rows(directory: Path, split: str) -> Rows:
    """All rows (source, target) of a split of a cleaned pair."""
    bitext = read_bitext(directory, split)
    return list(zip(bitext["src"], bitext["tgt"], strict=True))


def table_rows(table: FetchedTable, *columns: str) -> list[tuple[str | None, ...]]:
    """Cells of some columns of a fetched table."""
    batches = read_batches(table.path, columns)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
