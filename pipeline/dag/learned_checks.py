"""Checks of the settings of learned cleaning, before the rows are cleaned."""

import logging
from collections.abc import Iterable, Sequence

from pipeline.corpus.languages import LangPair
from pipeline.corpus.learned_config import DualCleaning, ScoreFiles
from pipeline.dag.artifact import Artifact
from pipeline.dag.corpus import Corpus
from pipeline.dag.score_files import read_score_files
from pipeline.dag.store import Store

logger = logging.getLogger(__name__)


def check_learned(settings: DualCleaning | ScoreFiles | None, store: Store, corpus: Corpus) -> dict[LangPair, Artifact]:
    """Find the faults of the settings before the hours of cleaning. Return the scores of files, by pair.

    Raises ValueError for names that no source has, and as `read_score_files`.
    """
    if settings is None:
        return {}
    pairs = [pair.name for pair in corpus.pairs]
    _warn_of_unknown("remove_of", settings.remove_of, "pairs of this run", pairs)
    if isinstance(settings, ScoreFiles):
        _warn_of_unknown("files", settings.files, "pairs of this run", pairs)
        of_run = [pair for pair, share in settings.remove_of.items() if share and pair in pairs]
        _warn_of_unknown("remove_of", of_run, "pairs with a file in corpus.learned.files", list(settings.files))
        return read_score_files(settings, store, corpus)
    all_sources = sorted({name for pair in corpus.pairs for name, _ in corpus.sources_of(pair)})
    for pair in corpus.pairs:
        sources = [name for name, _ in corpus.sources_of(pair)]
        if settings.share(pair.name) and settings.trusted and not {*sources} & {*settings.trusted}:
            raise ValueError(
                f"corpus.learned.trusted={settings.trusted} names no source of {pair}, whose sources are "
                f"{', '.join(sources)}; name one of them, or set corpus.learned.remove_of={{{pair}: 0}}"
            )
    _warn_of_unknown("trusted", settings.trusted, "sources of this run", all_sources)
    return {}


def _warn_of_unknown(setting: str, names: Iterable[str], kind: str, known_names: Sequence[str]) -> None:
    """Log a warning where a setting of corpus.learned has names that are not known. kind: of the known names."""
    if unknown := sorted({*names} - {*known_names}):
        logger.warning(
            "warning: corpus.learned.%s names %s, but the %s are %s",
            *(setting, ", ".join(unknown), kind, ", ".join(known_names)),
        )
