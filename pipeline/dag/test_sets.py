"""Further test sets, of corpora that a run was not trained on: fetch -> test_set."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unicodedata import unidata_version

from pipeline.corpus.config import CorpusConfig
from pipeline.corpus.languages import LangPair
from pipeline.dag.cleaning import open_sources
from pipeline.dag.corpus import Table
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store


def test_tables(config: CorpusConfig, pairs: Sequence[str], store: Store) -> dict[str, list[Table]]:
    """Fetch the test tables of a corpus and of those added to it. Returns them by the name of their source."""
    tables: dict[str, list[Table]] = {}
    for source in open_sources(config, pairs, store):
        for entry in source.manifest.files:
            for table in source.tables(entry) if entry.split == "test" else ():
                tables.setdefault(table[0].source, []).append(table)
    return tables


def test_set(tables: Sequence[Table], pair: LangPair) -> Stage:
    """Declare the rows of a pair in test tables. `translate` takes them as it takes cleaned rows."""
    return Stage(
        name="test_set",
        version=1,
        config={"pair": pair.name, "unicode": unidata_version},
        inputs={f"table {number}": artifact for number, (_, artifact) in enumerate(tables)},
        run=partial(_write, tables, pair),
        label=pair.name,
    )


def _write(tables: Sequence[Table], pair: LangPair, out: Path) -> None:
    from pipeline.corpus.cleaning.clean import write_test

    write_test(pair, tables=[table for table, _ in tables], out=out)
