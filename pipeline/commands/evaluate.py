"""`make evaluate`: further test sets, translated and scored by a finished run and by its bilingual models."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval.records.scores import BASELINE, METRICS, SYSTEM
from pipeline.config import ROOT, ScoreConfig, compose_tree, corpus_directory
from pipeline.corpus.config import CorpusConfig
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.cleaning import ALL
from pipeline.dag.corpus import Table, has_pair
from pipeline.dag.stages import translate
from pipeline.dag.store import Store
from pipeline.dag.test_sets import test_set, test_tables
from pipeline.decode.config import DecodeConfig
from pipeline.earlier_runs import RECORD
from pipeline.files import check_writable, write_atomically
from pipeline.finished_run import FinishedRun
from pipeline.jobs.hosts import check_launcher
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build

logger = logging.getLogger(__name__)

TESTS = "tests"  # directory of a run's further test sets
NAMES = {SYSTEM: "multilingual", BASELINE: "bilingual"}


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """The settings of configs/evaluate.yaml. The rules of the corpus do not affect test sets."""

    run: str
    pairs: list[str]
    metrics: list[str]
    resamples: int
    corpus: CorpusConfig
    decode: dict[str, Any]
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError("pairs is empty; give the directions to test, such as pairs=[de-en], or pairs=[all]")
        ScoreConfig(metrics=self.metrics or ["bleu"], resamples=self.resamples)


def load_evaluation(overrides: Sequence[str]) -> EvaluationConfig:
    """Return the configuration of `make evaluate`. Raises ValueError with what to change."""
    overrides, directory = corpus_directory(overrides, ROOT)
    tree = compose_tree("evaluate", overrides)
    if directory is not None:
        tree = {**tree, "corpus": {**tree["corpus"], "path": str(directory)}}
    return build(EvaluationConfig, tree)


def evaluate(config: EvaluationConfig) -> list[Path]:
    """Write translations and scores of every test set to `runs/<name>/tests/<test set>`, and print the scores."""
    check_launcher(config.runtime)
    store = Store(ROOT / config.runtime.artifacts)
    run = FinishedRun.open(config.run, runs=ROOT / config.runtime.runs, store=store)
    chosen = run.pairs if config.pairs == [ALL] else tuple(dict.fromkeys(run.pair(text) for text in config.pairs))
    decode = run.decode_with(config.decode, config.runtime.device)
    check_writable(run.directory / TESTS, "runtime.runs")
    tables = test_tables(config.corpus, [pair.name for pair in chosen], store)
    test_sets = {name: pairs for name, of_name in sorted(tables.items()) if (pairs := _pairs(of_name, chosen))}
    if not test_sets:
        codes = sorted({code for of_name in tables.values() for table, _ in of_name for code in table.codes})
        raise ValueError(
            f"{config.corpus.manifest or config.corpus.path} has no test set of {', '.join(map(str, chosen))}; its "
            f"test sets have {', '.join(codes) or 'no language'}; give another corpus (CORPUS), or other pairs "
            "(LANG_PAIRS)"
        )
    return [_evaluate(config, store, run, decode, name, pairs) for name, pairs in test_sets.items()]


def _pairs(tables: Sequence[Table], pairs: Sequence[LangPair]) -> dict[LangPair, list[Table]]:
    """Return the tables of each pair that has some."""
    by_pair = {pair: [table for table in tables if has_pair(table[0], pair)] for pair in pairs}
    return {pair: of_pair for pair, of_pair in by_pair.items() if of_pair}


def _evaluate(
    config: EvaluationConfig,
    store: Store,
    run: FinishedRun,
    decode: DecodeConfig,
    name: str,
    tables: Mapping[LangPair, list[Table]],
) -> Path:
    """Translate and score one test set; return its directory."""
    from eval.score.run import write_scores

    rows = {pair: store.get(test_set(of_pair, pair)) for pair, of_pair in tables.items()}
    record = run.record()
    directory = run.directory / TESTS / name
    for system, models in record["systems"].items():
        for ledger in models:
            pairs = [pair for pair in rows if ledger["pair"] in (None, pair.name)]
            if pairs:
                translations = _translations(
                    config, store, run, decode, system, ledger, {pair: rows[pair] for pair in pairs}
                )
                for pair in pairs:
                    file = f"{pair.name}.jsonl"
                    path = directory / "translations" / system / file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(path, (translations.path / file).read_text(encoding="utf-8"))
    names = [pair.name for pair in rows]
    kept = ("name", "recipe", "commit", "created", "config", "environment", "systems", "languages", "train_pairs")
    write_atomically(
        directory / RECORD,
        json.dumps(
            {**{key: record[key] for key in kept}, "pairs": names, "test_set": name}, ensure_ascii=False, indent=1
        ),
    )
    metrics = config.metrics or record["config"]["score"]["metrics"]
    write_scores(directory, metrics=metrics, n_resamples=config.resamples)
    print(f"{name}\n{_table(directory, metrics)}\n")
    logger.info("scores of %s: %s", name, directory / "scores.csv")
    return directory


def _translations(
    config: EvaluationConfig,
    store: Store,
    run: FinishedRun,
    decode: DecodeConfig,
    system: str,
    ledger: Mapping[str, Any],
    rows: Mapping[LangPair, Artifact],
) -> Artifact:
    """Translate by one model of the run, on one process if it is a bilingual one."""
    model, vocabulary = (store.find(*ledger["artifacts"][name].split("/")) for name in ("model", "vocabulary"))
    runtime, label = config.runtime, run.name
    if system == BASELINE:
        runtime = replace(runtime, processes=1, ep=1, mp=1, decode_experts="replicated")
        label = f"{NAMES[BASELINE]} {ledger['pair']}"
    return store.get(translate(rows, vocabulary, model, decode=decode, runtime=runtime, label=label))


def _table(directory: Path, metrics: Sequence[str]) -> str:
    """Return the scores as a table for a terminal, with the mean over pairs below."""
    from eval.records.scores import load_scores
    from eval.text_table import aligned

    scores = load_scores(directory / "scores.csv")
    systems = list(dict.fromkeys(row.system for row in scores))
    columns = [(metric, system) for metric in metrics for system in systems]
    header = ["pair", "lines", *(f"{METRICS[metric].title} {NAMES.get(system, system)}" for metric, system in columns)]
    lines = [header]
    for pair in dict.fromkeys(row.pair for row in scores):
        by_column = {(row.metric, row.system): row for row in scores if row.pair == pair}
        cells = [
            f"{row.score:.2f} [{row.ci_low:.1f}, {row.ci_high:.1f}]" for row in map(by_column.__getitem__, columns)
        ]
        lines.append([pair, f"{next(iter(by_column.values())).n_test:,}", *cells])
    if len(lines) > 2:
        values = [[row.score for row in scores if (row.metric, row.system) == column] for column in columns]
        lines.append(["mean", "", *(f"{sum(of_column) / len(of_column):.2f}" for of_column in values)])
    return aligned(lines, left=None)
