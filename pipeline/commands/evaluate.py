"""`make evaluate`: further test sets, translated and scored by a finished run and by its bilingual models."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eval.number_format import MISSING
from eval.records.challenge import CHALLENGE_FILE, load_challenge
from eval.records.run_record import EVALUATED
from eval.records.scores import METRICS
from pipeline.config import ROOT, compose_tree, corpus_directory
from pipeline.corpus.config import CorpusConfig
from pipeline.dag.challenge import challenge_rows
from pipeline.dag.cleaning import ALL
from pipeline.dag.overlap import find_overlap
from pipeline.dag.store import Store
from pipeline.dag.test_rows import challenge_name, rows_of_corpus, showable
from pipeline.dag.test_sets import translate_tests, write_test_scores
from pipeline.files import check_writable
from pipeline.finished_run import FinishedRun
from pipeline.jobs.hosts import check_launcher
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.routes import find_ways, no_way, tags
from pipeline.schema import build
from pipeline.score_config import CommandsConfig, ScoreConfig, check_commands

logger = logging.getLogger(__name__)


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
    commands: CommandsConfig = field(default_factory=CommandsConfig)
    challenge: bool = False

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError(
                'no language pair is given; name directions, for example LANG_PAIRS="de-en fr-en", or LANG_PAIRS=all'
            )
        if self.challenge and self.metrics:
            raise ValueError(
                f"metrics=[{','.join(self.metrics)}] has no effect with challenge=true, whose lines are scored by "
                "chrF++ alone; leave metrics out"
            )
        check_commands(self.metrics, self.commands, "")
        ScoreConfig(metrics=self.metrics or ["bleu"], resamples=self.resamples, commands=self.commands)


def load_evaluation(overrides: Sequence[str]) -> EvaluationConfig:
    """Return the configuration of `make evaluate`. Raises ValueError with what to change."""
    overrides, directory = corpus_directory(overrides, ROOT)
    tree = compose_tree("evaluate", overrides)
    if directory is not None:
        tree = {**tree, "corpus": {**tree["corpus"], "path": str(directory)}}
    return build(EvaluationConfig, tree)


def evaluate(config: EvaluationConfig) -> list[Path]:
    """Write translations and scores of every test set to `runs/<name>/tests/<test set>`, and print the scores.

    A direction that the run was not trained on is translated in one step and in two, as two systems.
    """
    check_launcher(config.runtime)
    store, runs = Store(ROOT / config.runtime.artifacts), ROOT / config.runtime.runs
    run = FinishedRun.open(config.run, runs=runs, store=store)
    decode = run.decode_with(config.decode, config.runtime.device)
    run = run.with_ensemble(decode, config.runtime, runs=runs, store=store)
    all_pairs = config.pairs == [ALL]
    chosen = run.pairs if all_pairs else tuple(dict.fromkeys(run.named_pair(text, tags(run)) for text in config.pairs))
    ways = {pair: find_ways(run, pair) for pair in chosen if pair not in run.pairs}
    for pair, of_pair in ways.items():
        if of_pair.direct_fault and not of_pair.pivots:
            raise ValueError(no_way(run, pair, of_pair))
    check_writable(run.directory / EVALUATED, "runtime.runs")
    test_sets = rows_of_corpus(
        config.corpus,
        chosen,
        store,
        corpus=config.corpus.manifest or config.corpus.path,
        advice="give another corpus (CORPUS), or other pairs (LANG_PAIRS)",
        skip_missing=all_pairs,
    )
    if config.challenge:
        test_sets = {challenge_name(name): challenge_rows(rows, store) for name, rows in test_sets.items()}
    record = run.record()
    directories: list[Path] = []
    permitted: set[str] = set() if config.challenge else showable(config.corpus)
    metrics = [] if config.challenge else config.metrics or recorded_metrics(record)
    for name, rows in test_sets.items():
        translations = translate_tests(
            store,
            record,
            rows,
            decode=decode,
            runtime=config.runtime,
            pivots={pair: ways[pair].pivots[0] for pair in rows if pair in ways and ways[pair].pivots},
            not_direct=[pair for pair in ways if ways[pair].direct_fault],
            ensemble=run.ensemble,
        )
        overlap = None
        if not config.challenge:
            overlap = find_overlap(store, name, record, rows, config.runtime.data, run.ensemble)
        directory = run.directory / EVALUATED / name
        write_test_scores(
            directory,
            name,
            record,
            translations,
            metrics=metrics,
            resamples=config.resamples,
            decode=decode,
            ensemble=run.ensemble,
            commands=asdict(config.commands),
            challenge=rows if config.challenge else None,
            overlap=overlap,
            show=name in permitted,
        )
        table = (
            _challenge_table(directory) if config.challenge else f"{_table(directory, metrics)}\n\n{_faults(directory)}"
        )
        print(f"{name}\n{table}\n")
        logger.info("scores of %s: %s", name, directory / (CHALLENGE_FILE if config.challenge else "scores.csv"))
        directories.append(directory)
    return directories


def recorded_metrics(record: Mapping[str, Any]) -> list[str]:
    """Return the metrics of a run, without those by command, because a record from somebody else must run nothing.

    Raises ValueError for a metric that this version does not know.
    """
    metrics = record["config"]["score"]["metrics"]
    for metric in metrics:
        if metric not in METRICS:
            raise ValueError(f"the run was scored by {metric!r}, which this version does not know; give metrics=[bleu]")
    if left_out := [metric for metric in metrics if METRICS[metric].by_command]:
        logger.info(
            "the run was also scored by %s; for that give metrics=[%s] and commands.%s=… again",
            ", ".join(left_out),
            ",".join(metrics),
            left_out[0],
        )
    return [metric for metric in metrics if metric not in left_out]


def _table(directory: Path, metrics: Sequence[str]) -> str:
    """Return the scores as a table for a terminal, with the mean over pairs below, and over those without training."""
    from eval.records.run_record import load_run
    from eval.records.scores import load_scores
    from eval.report.sections.further_tests import system_title
    from eval.score.macro import ALL, UNTRAINED, macro_means
    from eval.text_table import aligned

    record, scores = load_run(directory), load_scores(directory / "scores.csv")
    systems = list(dict.fromkeys(row.system for row in scores))
    columns = [(metric, system) for metric in metrics for system in systems]
    header = ["pair", "lines", *(f"{METRICS[metric].title} {system_title(record, name)}" for metric, name in columns)]
    lines = [header]
    for pair in dict.fromkeys(row.pair for row in scores):
        by_column = {(row.metric, row.system): row for row in scores if row.pair == pair}
        cells = [
            f"{row.score:.2f} [{row.ci_low:.1f}, {row.ci_high:.1f}]" if row is not None else MISSING
            for row in (by_column.get(column) for column in columns)
        ]
        lines.append([pair, f"{next(iter(by_column.values())).n_test:,}", *cells])
    if len(lines) > 2:  # more than one pair
        means = {(row.resource, row.metric, row.system): f"{row.score:.2f}" for row in macro_means(scores)}
        for resource, title in ((UNTRAINED, "mean, untrained"), (ALL, "mean")):
            cells = [means.get((resource, *column), MISSING) for column in columns]
            if resource == ALL or any(cell != MISSING for cell in cells):
                lines.append([title, "", *cells])
    return aligned(lines, left=None)


def _faults(directory: Path) -> str:
    """Return the shares of faulty translations as a table for a terminal, a line for each pair and system.

    The share of the references stands beside each. Lines below say why languages are not judged, and whether
    translations that the limit of length ended are left out.
    """
    from eval.number_format import share
    from eval.records.faults import LANGUAGE
    from eval.report.sections.further_faults import SHOWN_FAULTS, further_faults, load_counted
    from eval.report.sections.further_tests import overlap_text, system_title
    from eval.text_table import aligned

    result = load_counted(directory.name, directory)
    faults = further_faults([result])
    lines = [["pair", "system"]]
    for title in SHOWN_FAULTS.values():
        lines[0] += [title, "of references"]
    for pair, by_column in faults.pairs.items():
        for (_, system), row in by_column.items():
            cells = []
            for fault in SHOWN_FAULTS:
                unknown = "not judged" if fault == LANGUAGE and row.shares[fault] is None else MISSING
                values = row.shares[fault], row.floors[fault]
                cells += [share(values[0]) if values[0] is not None else unknown]
                cells += [share(values[1]) if values[1] is not None else MISSING]
            lines.append([pair, system_title(result.record, system), *cells])
    reasons = [f"languages are not judged for {', '.join(pairs)}: {reason}" for reason, pairs in faults.not_judged]
    if faults.unrecorded:
        reasons.append(
            "any fault leaves out cut off: an older version made some of the translations, without recording it"
        )
    reasons.append(overlap_text(result.record))
    return "\n".join([aligned(lines, left=(0, 1)), *reasons])


def _challenge_table(directory: Path) -> str:
    """Return the losses of a challenge set as a table for a terminal."""
    from eval.records.run_record import load_run
    from eval.report.sections.further_tests import system_title
    from eval.score.challenge import text_table

    record, rows = load_run(directory), load_challenge(directory)
    return text_table(rows, {system: system_title(record, system) for system in record.systems})
