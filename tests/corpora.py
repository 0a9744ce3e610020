"""Corpora that are prepared and cleaned by the stages of the product, for tests."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.config import ROOT
from pipeline.corpus.bitext import SCHEMA, read_bitext, write_bitext
from pipeline.corpus.cleaning.clean import clean as clean_rows
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.fetched import FetchedTable
from pipeline.corpus.tables import read_batches
from pipeline.dag.artifact import Artifact
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.corpus import Corpus
from pipeline.dag.store import Store
from pipeline.tasks import DataConfig

Rows = list[tuple[str, str]]


def prepare(source: Path, pairs: str, store: Path, **config: Any) -> Corpus:
    """Fetch a corpus for some pairs. pairs: their names with spaces between them."""
    return prepare_corpus(CorpusConfig(path=str(source), **config), pairs.split(), Store(store), DataConfig())


def clean_pair(source: Path, pair: str, store: Path, *, rules: Rules | None = None, **config: Any) -> Artifact:
    """Clean one pair of a corpus, and return the artifact."""
    corpus_config = CorpusConfig(path=str(source), rules=rules or Rules(), **config)
    artifacts = Store(store)
    corpus = prepare_corpus(corpus_config, [pair], artifacts, DataConfig())
    return clean(corpus_config, artifacts, corpus, corpus.pairs[0], DataConfig())


def write_split(directory: Path, split: str, rows: Rows) -> None:
    """Write rows as a stage leaves them."""
    columns = [list(side) for side in zip(*rows, strict=True)] or [[], []]
    write_bitext(directory / f"{split}.arrow", [pa.record_batch(columns, schema=SCHEMA)])


def clean_in_shards(config: CorpusConfig, corpus: Corpus, shard_rows: int, out: Path) -> tuple[int, dict[str, bytes]]:
    """Clean the first pair of a corpus in shards, the last one first. Return the number of shards, and the files."""
    numbers = []

    def run(function: Any, shards: Any) -> Any:
        numbers.append(len(shards))
        return [function(shard) for shard in reversed(shards)][::-1]

    out.mkdir()
    clean_rows(
        config,
        corpus.pairs[0],
        tables=[table for table, _ in corpus.tables],
        held_out=corpus.held_out.path if corpus.held_out and config.rules.held_out else None,
        out=out,
        shard_rows=shard_rows,
        run_shards=run,
    )
    return numbers[0], {path.name: path.read_bytes() for path in out.iterdir()}


def write_german(directory: Path, count: int) -> Path:
    """Write so many short rows of German and English of the sample to one file, and return the directory."""
    heads, *lines = (ROOT / "data" / "sample" / "train.tsv").read_text(encoding="utf-8").splitlines()
    places = [heads.split("\t").index(code) for code in ("de", "en")]
    rows = [[line.split("\t")[place] for place in places] for line in lines]
    rows = [row for row in rows if all(row) and len(row[0]) < 100][:count]
    (directory / "de-en.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return directory


def bitext_rows(directory: Path, split: str) -> Rows:
    """Return all rows (source, target) of a split of a cleaned pair."""
    bitext = read_bitext(directory, split)
    return list(zip(bitext["src"], bitext["tgt"], strict=True))


def table_rows(table: FetchedTable, *columns: str) -> list[tuple[str | None, ...]]:
    """Return the cells of some columns of a fetched table."""
    batches = read_batches(table.path, columns)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
