"""One table of systems: their sizes, what their trainings cost, and how well they translate.

Speed and memory are those that a training measured of itself, so they depend on what else its machine did. The planned
speed is that of `make plan` for the same settings.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.experiment.contrasts import OWN, load_systems, on_test_set
from bench.output import Row, aligned, number
from eval.number_format import decimal, quantity
from eval.records.results import RunResults, System
from eval.records.run_record import load_events, load_losses
from eval.records.scores import BASELINE, METRICS, SYSTEM
from pipeline.commands.opening import training_seconds
from pipeline.config import RunConfig
from pipeline.schema import build

GIB = 2**30
SCORES = ("bleu", "chrf++")
MIXTURE = ("experts_per_token", "drop_rate")
COLUMNS = (
    *("system", "num_seeds", "recipe", "size", "models", "parameters", "active_parameters", "flops_per_token"),
    *("learning_rate", "tokens", "tokens_per_second", "planned_tokens_per_second", "mfu", "memory_gib", "train_hours"),
    *(
        "training_loss",
        "experts_per_token",
        "drop_rate",
        "validation_loss",
        "test_set",
        "num_pairs",
        *SCORES,
        "cpu",
        "commits",
    ),
)


def describe(directories: Sequence[Path], test_set: str = OWN, *, by_run: bool = False) -> list[dict[str, Any]]:
    """Return a row for each system, and one for the bilingual models if the first run has them.

    Numbers are means over the seeds of a system; speeds are medians and memory is the most of any. Of bilingual models
    they are sums, and the speed is that of all together. The training loss is that of the last tenth. Experts of a
    token, and the share of choices that found no slot, are means over the training.

    directories: of finished runs. Those that differ in the seed alone are one system.
    test_set: of the scores: OWN, or the name of a further one that all runs have translated.
    by_run: a row for each run in place of each system, with its own name.
    Raises ValueError if a run lacks the test set, or as `load_results`.
    """
    systems = load_systems(directories)
    if by_run:
        systems = [System(label=run.label, runs=(run,)) for system in systems for run in system.runs]
    rows = [_multilingual(system, test_set) for system in systems]
    first = systems[0].runs[0]
    return rows if BASELINE not in first.record.systems else [*rows, _bilingual(first, test_set)]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    header = ("system", "seeds", "parameters", "tokens/s", "plan", "GiB", "hours", "loss")
    lines = [[*header, *(METRICS[metric].title for metric in SCORES)]]
    for row in rows:
        speeds = [number(row["tokens_per_second"]), number(row["planned_tokens_per_second"])]
        costs = [decimal(row["memory_gib"], 1), decimal(row["train_hours"], 2), decimal(row["validation_loss"], 3)]
        scores = [decimal(row[metric], 2) for metric in SCORES]
        lines.append([row["system"], number(row["num_seeds"]), quantity(row["parameters"]), *speeds, *costs, *scores])
    return aligned(lines, left=["system"])


def _multilingual(system: System, test_set: str) -> dict[str, Any]:
    runs = system.runs
    ledgers = [run.record.systems[SYSTEM][0] for run in runs]
    config = build(RunConfig, runs[0].record.config, f"{runs[0].directory}: config")
    seconds = training_seconds(config)
    events = [event for run in runs for event in load_events(run.directory, "train")]
    return {
        "system": system.label,
        "num_seeds": len(runs),
        "recipe": runs[0].record.recipe,
        "models": 1,
        "learning_rate": config.train.learning_rate,
        **{key: ledgers[0][key] for key in ("size", "parameters", "active_parameters", "flops_per_token")},
        "tokens": fmean(ledger["tokens"] for ledger in ledgers),
        "tokens_per_second": median(ledger["tokens_per_second"] for ledger in ledgers),
        "planned_tokens_per_second": config.train.max_tokens / seconds if seconds else None,
        "mfu": median(ledger["mfu"] for ledger in ledgers),
        "memory_gib": max(event["memory"] for event in events) / GIB,
        "train_hours": fmean(ledger["train_seconds"] for ledger in ledgers) / 3600,
        "training_loss": fmean(_last_loss(run) for run in runs),
        **gate_means(runs),
        "validation_loss": fmean(ledger["validation_loss"] for ledger in ledgers),
        **_scores(runs, SYSTEM, test_set),
        **_origin(runs),
    }


def gate_means(runs: Iterable[RunResults]) -> dict[str, float | None]:
    """Return the experts of a token and the share of choices that found no slot, means over the trainings of the runs.

    None without experts.
    """
    events = [event for run in runs for event in load_events(run.directory, "train")]
    values = {name: [event[name] for event in events if name in event] for name in MIXTURE}
    return {name: fmean(of_name) if of_name else None for name, of_name in values.items()}


def _last_loss(run: RunResults) -> float:
    """Return the mean training loss of the last tenth of the records."""
    records = load_losses(run.directory, "train")
    return fmean(record.cross_entropy for record in records[-max(len(records) // 10, 1) :])


def _bilingual(run: RunResults, test_set: str) -> dict[str, Any]:
    ledgers = run.record.systems[BASELINE]
    tokens, seconds = (sum(ledger[key] for ledger in ledgers) for key in ("tokens", "train_seconds"))
    return {
        **dict.fromkeys(COLUMNS),
        "system": BASELINE,
        "num_seeds": 1,
        "models": len(ledgers),
        "parameters": sum(ledger["parameters"] for ledger in ledgers),
        "tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "train_hours": seconds / 3600,
        **_scores([run], BASELINE, test_set),
        **_origin([run]),
    }


def _scores(runs: Iterable[RunResults], model: str, test_set: str) -> dict[str, Any]:
    """Return the means over pairs and seeds, and the number of pairs."""
    tested = [run if test_set == OWN else on_test_set(run, test_set) for run in runs]
    rows = [row for run in tested for row in run.scores if row.system == model]
    of_metric = {metric: [row.score for row in rows if row.metric == metric] for metric in SCORES}
    means = {metric: fmean(scores) if scores else None for metric, scores in of_metric.items()}
    return {"test_set": test_set, "num_pairs": len({row.pair for row in rows}), **means}


def _origin(runs: Iterable[RunResults]) -> dict[str, str]:
    commits = dict.fromkeys(run.record.commit for run in runs)
    machines = dict.fromkeys(f"{run.record.environment.get('cpu', '')}" for run in runs)
    return {"cpu": ", ".join(machines), "commits": " ".join(commits)}
