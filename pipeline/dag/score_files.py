"""The stage `scores`: scores of rows that others computed, read and checked before the rows are cleaned."""

import json
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pipeline.config import ROOT
from pipeline.corpus.fetched import read_tables
from pipeline.corpus.languages import LangPair
from pipeline.corpus.learned_config import SCORE_COUNTS, ScoreFiles
from pipeline.dag.artifact import Artifact
from pipeline.dag.corpus import SPLIT, Corpus, Table
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.files import file_sha256

logger = logging.getLogger(__name__)


def read_score_files(settings: ScoreFiles, store: Store, corpus: Corpus) -> dict[LangPair, Artifact]:
    """Read the scores of all pairs that have a file.

    Raises ValueError for a file that does not exist or cannot be read as the settings say, and for a source that is not
    one of the pair or is not named where it has several.
    """
    scores = {}
    for pair in corpus.pairs:
        if pair.name not in settings.files or (not settings.share(pair.name) and settings.min_score is None):
            continue
        path = ROOT / Path(settings.files[pair.name]).expanduser()
        if not path.is_file():
            raise ValueError(f"corpus.learned.files.{pair.name}={settings.files[pair.name]} is no file; correct it")
        scores[pair] = store.get(_scores(path, settings, pair, _tables(settings, store, corpus, pair)))
        _say_coverage(pair, settings, scores[pair])
    return scores


def _say_coverage(pair: LangPair, settings: ScoreFiles, scores: Artifact) -> None:
    """Log how many rows have a score, as a warning if most have none: they all stay."""
    counts = json.loads((scores.path / SCORE_COUNTS).read_text(encoding="utf-8"))
    with_score, rows = counts["rows_with_a_score"], counts["rows"]
    coverage = f"{with_score} of {rows} rows have a score in {settings.files[pair.name]}"
    if settings.has_texts and 2 * with_score < rows:
        logger.warning(
            "warning: pair %s: only %s, and the others stay; were the texts lowercased or tokenized for scoring?",
            *(pair, coverage),
        )
    else:
        logger.info("pair %s: %s", pair, coverage)


def _scores(path: Path, settings: ScoreFiles, pair: LangPair, tables: Sequence[Table]) -> Stage:
    return Stage(
        name="scores",
        version=1,
        config={"pair": pair.name, "sha256": file_sha256(path), **settings.to_key()},
        inputs={f"table {number}": artifact for number, (_, artifact) in enumerate(tables)},
        run=partial(_read, path, settings, pair, [table.path for table, _ in tables]),
        label=pair.name,
    )


def _read(path: Path, settings: ScoreFiles, pair: LangPair, tables: Sequence[Path], out: Path) -> None:
    from pipeline.corpus.cleaning.score_file import read_score_file

    read_score_file(path, settings, pair, tables, out)


def _tables(settings: ScoreFiles, store: Store, corpus: Corpus, pair: LangPair) -> list[Table]:
    """Return the training tables of a pair that the lines of a file stand for, as they were before dev and test.

    The lines are those of the pair's only source, or of the one that the settings name.
    """
    tables = corpus.tables_of(pair, "train")
    sources = list(dict.fromkeys(table.source for table, _ in tables))
    if not settings.has_texts:
        of_others = {name for other in corpus.pairs if other != pair for name, _ in corpus.sources_of(other)}
        is_for_others = len(sources) == 1 and settings.source in of_others
        if settings.source and settings.source not in sources and not is_for_others:
            raise ValueError(
                f"corpus.learned.source={settings.source} is no source of {pair}; its sources are {', '.join(sources)}"
            )
        if not settings.source and len(sources) > 1:
            raise ValueError(
                f"corpus.learned: {pair} has the sources {', '.join(sources)}; name the one whose rows are the lines "
                f"of {settings.files[pair.name]} by corpus.learned.source, or give lines their texts and name "
                "source_column and target_column"
            )
        source = settings.source if settings.source in sources else sources[0]
        tables = [(table, artifact) for table, artifact in tables if table.source == source]
    return [_whole(store, table) for table in tables]


def _whole(store: Store, table: Table) -> Table:
    """Return the table of which dev or test was split off, or the table itself."""
    part, artifact = table
    if artifact.stage != SPLIT:
        return table
    fetched = store.inputs(artifact)["table"]
    return next((whole, fetched) for whole in read_tables(fetched.path) if whole.columns == part.columns)
