"""`make distill`: source text, translated by a finished run, becomes a corpus for a student.

The student learns the translations of the teacher (Kim and Rush, arXiv:1606.07947). Its dev
and test sets are the teacher's, which people translated.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS
from pipeline.dag.artifact import Artifact
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.files import check_writable
from pipeline.finished_run import FinishedRun
from pipeline.jobs.hosts import check_launcher
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build

logger = logging.getLogger(__name__)

HEADING = "# Made by `make distill`, which may replace it.\n"
REAL = "real"  # name of the source of the teacher's own pairs


@dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """The settings of configs/distillation.yaml. Paths are absolute or relative to the root of the repository."""

    run: str
    pairs: list[str]
    text: str
    real: bool
    licence: str
    citation: str
    out: str
    name: str
    decode: dict[str, Any]
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        remedies = {
            "run": "the name of a finished run, a directory below runs/",
            "pairs": "the directions to translate, such as LANG_PAIRS=de-en",
            "out": "the directory of the corpus to make",
        }
        if self.text:
            remedies["licence"] = "that of the text, which its translations will have too, such as LICENCE=CC0-1.0"
        check_given(self, remedies)
        if not self.text and (self.licence or self.citation):
            raise ValueError("LICENCE and CITATION are those of a text: give it, as TEXT=mono.de, or leave them out")


def load_distillation(overrides: Sequence[str]) -> DistillationConfig:
    """Return the configuration of `make distill`. Raises ValueError with what to change."""
    return build(DistillationConfig, compose_tree("distillation", overrides))


def distill(config: DistillationConfig) -> Path:
    """Translate the text and lay out the corpus in the directory `out`, which is returned."""
    check_launcher(config.runtime)
    store, runs = Store(ROOT / config.runtime.artifacts), ROOT / config.runtime.runs
    run = FinishedRun.open(config.run, runs=runs, store=store)
    decode = run.decode_with(config.decode, config.runtime.device)
    run = run.with_ensemble(decode, config.runtime, runs=runs, store=store)
    pairs = _pairs(config, run)
    encoded = run.inputs(store)
    cleaned = {pair: store.inputs(encoded[pair.name])["bitext"] for pair in pairs}
    texts = {pair: _text(config, pair, cleaned[pair]) for pair in pairs}
    out = ROOT / config.out
    check_writable(out.parent, "out")
    check_ours(out, HEADING)
    tables = {
        pair: translated(
            store,
            run,
            decode,
            pair,
            texts[pair].lines,
            what=texts[pair].name,
            stage="distill",
            identity=texts[pair].identity,
            inputs=texts[pair].inputs,
            runtime=config.runtime,
        )
        for pair in pairs
    }
    lay_out(out, HEADING, partial(_fill, config, run, decode, tables, cleaned))
    if not store.ran:
        logger.info("nothing to translate: all is as it was")
    logger.info("corpus: %s; to train a student on it: corpus.path=%s", config.out, config.out)
    return out


def _pairs(config: DistillationConfig, run: FinishedRun) -> list[LangPair]:
    pairs = [run.pair(text) for text in config.pairs]
    if len(set(pairs)) < len(pairs):
        raise ValueError(f"LANG_PAIRS={' '.join(config.pairs)}: name each once")
    if config.text and len({pair.src for pair in pairs}) > 1:
        raise ValueError(f"LANG_PAIRS={' '.join(config.pairs)}: a text is in one language; translate each by itself")
    return pairs


@dataclass(frozen=True, kw_only=True)
class _Text:
    """Source text of a pair. identity, inputs: the part of a stage's key that stands for it."""

    name: str
    lines: Callable[[], Iterator[str]]
    identity: Mapping[str, Any]
    inputs: Mapping[str, Artifact]


def _text(config: DistillationConfig, pair: LangPair, cleaned: Artifact) -> _Text:
    if config.text:
        path, sha256 = lines_of(pair, config.text)
        return _Text(name=str(path), lines=partial(read_text, path), identity={"text": sha256}, inputs={})
    name = f"the training pairs of {pair}"
    return _Text(name=name, lines=partial(_sources, cleaned), identity={"text": ""}, inputs={"bitext": cleaned})


def _sources(cleaned: Artifact) -> Iterator[str]:
    for batch in _real_rows(cleaned):
        yield from batch.column("src").to_pylist()


def _real_rows(cleaned: Artifact) -> Iterator[Any]:
    """Yield the training rows that people wrote on both sides, in batches: those of sources without a tag."""
    from pipeline.corpus.bitext import iter_bitext

    start = 0
    for source in funnel(cleaned.path)["sources"]:
        if not source["tag"]:
            yield from iter_bitext(cleaned.path, "train", start, start + source["kept"])
        start += source["kept"]


def _fill(
    config: DistillationConfig,
    run: FinishedRun,
    decode: DecodeConfig,
    tables: Mapping[LangPair, Artifact],
    cleaned: Mapping[LangPair, Artifact],
    directory: Path,
) -> dict[str, Any]:
    """Write the files of the corpus into the directory, and return its manifest."""
    from pipeline.corpus.bitext import iter_bitext

    files = []
    for pair, table in tables.items():
        licence = config.licence or _licence(cleaned[pair])
        files.append(entry(pair, "train", directory, copy_of(table), licence=licence))
        if config.real:
            real = _writer(pair, partial(_real_rows, cleaned[pair]))
            files.append(entry(pair, "train", directory, real, name=REAL, licence=_licence(cleaned[pair])))
        for split in SPLITS[1:]:
            files.append(entry(pair, split, directory, _writer(pair, partial(iter_bitext, cleaned[pair].path, split))))
    about = run.record()["corpus"]
    names = ", ".join(pair.name for pair in tables)
    text = f"{config.citation or Path(config.text).name}; " if config.text else ""
    return {
        "name": corpus_name(config, run, "distilled"),
        "title": f"{Path(config.text).name if config.text else about['title']}, translated for a student: {names}",
        "licence": about["licence"],
        "citation": f"{text}{about['citation']}; the targets of its training rows are by {made_by(run, decode)}",
        "files": files,
    }


def _licence(cleaned: Artifact) -> str:
    """Return the licences of the training rows that people wrote."""
    return " AND ".join(sorted({source["licence"] for source in funnel(cleaned.path)["sources"] if not source["tag"]}))


def _writer(pair: LangPair, batches: Callable[[], Iterator[Any]]) -> Callable[[Path], None]:
    """Return a function that writes batches (src, tgt) as a table."""

    def write(path: Path) -> None:
        from pipeline.corpus.tables import Table, write_table

        columns = (pair.src, pair.tgt)
        write_table(Table(columns=columns, batches=(b.rename_columns(list(columns)) for b in batches())), path)

    return write
