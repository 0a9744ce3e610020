"""`make backtranslate`: monolingual text, translated by a finished run, becomes a corpus to train on.

The text is the target, and its translation is the source (Sennrich et al., arXiv:1511.06709). A tag marks such sources
(Caswell et al., arXiv:1906.06442).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.commands.translated_corpus import (
    check_given,
    check_ours,
    copy_of,
    corpus_name,
    entry,
    lay_out,
    lines_of,
    made_by,
    read_text,
    translated,
)
from pipeline.config import ROOT, compose_tree
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.files import check_writable
from pipeline.finished_run import FinishedRun
from pipeline.jobs.hosts import check_launcher
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build

logger = logging.getLogger(__name__)

TAG = "bt"
HEADING = "# Made by `make backtranslate`, which may replace it.\n"


@dataclass(frozen=True, kw_only=True)
class BacktranslationConfig:
    """The settings of configs/backtranslation.yaml. Paths are absolute or relative to the root of the repository."""

    run: str
    pairs: list[str]
    text: str
    licence: str
    citation: str
    out: str
    name: str
    decode: dict[str, Any]
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        remedies = {
            "run": "the name of a finished run, a directory below runs/",
            "pairs": "the directions to translate, such as LANG_PAIRS=en-de",
            "text": "a file of one sentence a line",
            "licence": "that of the text, which the corpus will have too, such as LICENCE=CC0-1.0",
            "out": "the directory of the corpus to make",
        }
        check_given(self, remedies)


def load_backtranslation(overrides: Sequence[str]) -> BacktranslationConfig:
    """Return the configuration of `make backtranslate`. Raises ValueError with what to change."""
    return build(BacktranslationConfig, compose_tree("backtranslation", overrides))


def back_translate(config: BacktranslationConfig) -> Path:
    """Translate the text and lay out the corpus in the directory `out`, which is returned."""
    check_launcher(config.runtime)
    store, runs = Store(ROOT / config.runtime.artifacts), ROOT / config.runtime.runs
    run = FinishedRun.open(config.run, runs=runs, store=store)
    decode = run.decode_with(config.decode, config.runtime.device)
    run = run.with_ensemble(decode, config.runtime, runs=runs, store=store)
    pairs = _pairs(config.pairs, run)
    out = ROOT / config.out
    text, sha256 = lines_of(pairs[0], config.text)
    check_writable(out.parent, "out")
    check_ours(out, HEADING)
    tables = {
        pair: translated(
            store,
            run,
            decode,
            pair,
            lambda: read_text(text),
            what=str(text),
            stage="backtranslate",
            identity={"text": sha256},
            inputs={},
            runtime=config.runtime,
        )
        for pair in pairs
    }
    lay_out_tables(config, run, decode, tables, out)
    if not store.ran:
        logger.info("nothing to translate: all is as it was")
    logger.info("corpus: %s; to train with it: corpus.add=[%s]", config.out, config.out)
    return out


def _pairs(texts: Sequence[str], run: FinishedRun) -> list[LangPair]:
    pairs = [run.pair(text) for text in texts]
    if len({pair.src for pair in pairs}) > 1 or len(set(pairs)) < len(pairs):
        raise ValueError(f"LANG_PAIRS={' '.join(texts)}: name each once, all from the one language that the text is in")
    return pairs


def lay_out_tables(
    config: BacktranslationConfig,
    run: FinishedRun,
    decode: DecodeConfig,
    tables: Mapping[LangPair, Artifact],
    out: Path,
) -> None:
    """Lay out the corpus, in place of one that this command made there earlier."""
    languages = ", ".join(pair.tgt for pair in tables)
    source = next(iter(tables)).src

    def fill(directory: Path) -> dict[str, Any]:
        files = [
            entry(LangPair(pair.tgt, pair.src), "train", directory, copy_of(table), tag=TAG)
            for pair, table in tables.items()
        ]
        text, translator = config.citation or Path(config.text).name, made_by(run, decode)
        return {
            "name": corpus_name(config, run, "backtranslated"),
            "title": f"Text in {source} ({Path(config.text).name}) with back-translations into {languages}",
            "licence": config.licence,
            "citation": f"{text}; its translations into {languages} are by {translator}",
            "files": files,
        }

    lay_out(out, HEADING, fill)
