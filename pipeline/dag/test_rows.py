"""Rows of further test sets, of corpora that a run was not trained on: fetch -> test_set (-> challenge)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unicodedata import unidata_version

from pipeline.config import ROOT, RunConfig, compose_tree, corpus_directory
from pipeline.corpus.config import CorpusConfig
from pipeline.corpus.languages import LangPair, MissingPairError
from pipeline.corpus.manifest import Manifest
from pipeline.corpus.sources.download import MissingFileError
from pipeline.corpus.sources.templates import has_templates
from pipeline.dag.artifact import Artifact
from pipeline.dag.challenge import challenge_rows
from pipeline.dag.cleaning import Source, for_pairs, read_manifests
from pipeline.dag.corpus import Table, has_pair, may_show
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.schema import build
from pipeline.score_config import CHALLENGE, OWN

logger = logging.getLogger(__name__)

PairRows = Mapping[LangPair, Artifact]


def load_corpus(text: str) -> CorpusConfig:
    """Return the corpus that a user names: a preset, `preset:path` with the place of its files, or a directory.

    Raises ValueError with what to change.
    """
    name, _, path = text.partition(":")
    preset = name if path and not Path(text).expanduser().is_dir() else text
    overrides, directory = corpus_directory([f"corpus={preset}"], ROOT)
    tree = compose_tree("evaluate", overrides)["corpus"]
    if preset != text:
        directory = Path(path).expanduser().absolute()
        if not directory.is_dir():
            raise ValueError(f"{path} is no directory; give the one with the files of {preset}, or {preset} alone")
    return build(CorpusConfig, tree if directory is None else {**tree, "path": str(directory)}, "corpus")


def further_rows(config: RunConfig, pairs: Sequence[LangPair], store: Store) -> dict[str, PairRows]:
    """Make the rows of the test sets that `score.test_sets` has beside the run's own, for the pairs that they have.

    Returns the rows of each pair by the name of the test set. Raises ValueError for one without any of the pairs.
    """
    fetching = Store(store.root)  # without a listener, because a pair that is not there is no failure of the run
    test_sets: dict[str, PairRows] = {}
    for text in config.score.test_sets:
        if text in (OWN, CHALLENGE):
            continue
        corpus = text.removeprefix(f"{CHALLENGE}:")
        try:
            more = rows_of_corpus(
                load_corpus(corpus),
                pairs,
                store,
                corpus=corpus,
                advice="take it out of score.test_sets",
                skip_missing=True,
                fetching=fetching,
            )
        except ValueError as error:
            raise ValueError(f"score.test_sets: {text}: {error}") from error
        if corpus != text:
            more = {challenge_name(name): challenge_rows(rows, store) for name, rows in more.items()}
        if CHALLENGE in more and CHALLENGE in config.score.test_sets:
            raise ValueError(
                f"score.test_sets: {text} has a test set {CHALLENGE}, as the run has; leave one of them out"
            )
        if same := sorted(test_sets.keys() & more.keys()):
            raise ValueError(
                f"score.test_sets: {text} has a test set {same[0]}, as one before it has; name one of them"
            )
        test_sets |= more
    return test_sets


def further_showable(config: RunConfig) -> set[str]:
    """Return the names of the test sets of `score.test_sets` whose text a report may show."""
    corpora = [text for text in config.score.test_sets if text != OWN and text.partition(":")[0] != CHALLENGE]
    return {name for text in corpora for name in showable(load_corpus(text))}


def showable(config: CorpusConfig) -> set[str]:
    """Return the names of the test sets of a corpus, and of those added to it, whose text a report may show."""
    manifests = [manifest for manifest, _ in read_manifests(config)]
    permitted: dict[str, bool] = {}
    for manifest in manifests:
        for entry in manifest.files:
            if entry.split == "test":
                source = {"name": entry.source or manifest.name, "licence": entry.licence or manifest.licence}
                permitted[source["name"]] = permitted.get(source["name"], True) and may_show(manifests, source)
    return {name for name, is_shown in permitted.items() if is_shown}


def challenge_name(test_set: str) -> str:
    """Return the name of the challenge set of a further test set."""
    return f"{CHALLENGE}-{test_set}"


def rows_of_corpus(
    config: CorpusConfig,
    pairs: Sequence[LangPair],
    store: Store,
    *,
    corpus: str,
    advice: str,
    skip_missing: bool,
    fetching: Store | None = None,
) -> dict[str, PairRows]:
    """Make the rows of the test sets of a corpus and of those added to it. Returns them by the name of the test set.

    corpus, advice: its name, and what to do if it has none of the pairs, for the error.
    skip_missing: pairs that an entry with placeholders lacks are left out, with a message. Otherwise they raise
        MissingPairError or MissingFileError.
    fetching: the store that fetches, by default the same one.
    Raises ValueError if no test set has one of the pairs.
    """
    tables: dict[str, list[Table]] = {}
    faults: list[str] = []
    for manifest, files in read_manifests(config):
        for entry in manifest.files:
            if entry.split == "test":
                alone = replace(manifest, files=(entry,))
                for table in _tables(alone, files, pairs, fetching or store, faults if skip_missing else None):
                    tables.setdefault(table[0].source, []).append(table)
    by_name = {name: _rows(name, of_name, pairs, store) for name, of_name in sorted(tables.items())}
    test_sets = {name: rows for name, rows in by_name.items() if rows}
    if not test_sets:
        codes = sorted({code for of_name in tables.values() for table, _ in of_name for code in table.codes})
        raise ValueError(
            f"{corpus} has no test set of {', '.join(map(str, pairs))}; its test sets have "
            f"{', '.join(codes) or 'no language'}{f' ({faults[0]})' if faults else ''}; {advice}"
        )
    return test_sets


def _tables(
    manifest: Manifest, files: Path, pairs: Sequence[LangPair], store: Store, faults: list[str] | None
) -> list[Table]:
    """Fetch the tables of a manifest of one entry.

    faults: gets the reason for every pair that an entry with placeholders lacks; without it, the first one is raised.
    """

    def fetch(some: Sequence[LangPair]) -> list[Table]:
        source = Source(store, for_pairs(manifest, [f"{pair.src}:{pair.tgt}" for pair in some]), files)
        return [table for entry in source.manifest.files for table in source.tables(entry)]

    try:
        return fetch(pairs)
    except (MissingPairError, MissingFileError):
        if faults is None or not has_templates(manifest):
            raise
    tables: list[Table] = []
    for pair in pairs:
        try:
            tables += [table for table in fetch([pair]) if table not in tables]
        except (MissingPairError, MissingFileError) as error:
            faults.append(str(error))
            logger.info("%s is not tested on %s: %s", pair, manifest.files[0].source or manifest.name, error)
    return tables


def _rows(name: str, tables: Sequence[Table], pairs: Sequence[LangPair], store: Store) -> PairRows:
    """Make the rows of the pairs that a test set has."""
    from pipeline.corpus.bitext import num_rows

    rows: dict[LangPair, Artifact] = {}
    for pair in pairs:
        if of_pair := [table for table in tables if has_pair(table[0], pair)]:
            artifact = store.get(test_set(of_pair, pair))
            if num_rows(artifact.path, "test"):
                rows[pair] = artifact
            else:
                logger.info("%s is not tested on %s: none of its rows has text in both languages", pair, name)
    return rows


def test_set(tables: Sequence[Table], pair: LangPair) -> Stage:
    """Declare the rows of a pair in test tables. `translate` takes them as it takes cleaned rows."""
    return Stage(
        name="test_set",
        version=1,
        config={"pair": pair.name, "unicode": unidata_version},
        inputs={f"table {number}": artifact for number, (_, artifact) in enumerate(tables)},
        run=partial(_write_rows, tables, pair),
        label=pair.name,
    )


def _write_rows(tables: Sequence[Table], pair: LangPair, out: Path) -> None:
    from pipeline.corpus.cleaning.clean import write_test

    write_test(pair, tables=[table for table, _ in tables], out=out)
