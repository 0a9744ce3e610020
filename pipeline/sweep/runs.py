"""`make runs`: a table of all runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from eval.number_format import MISSING, decimal, quantity
from eval.records.run_record import load_run
from eval.records.scores import SYSTEM, load_scores
from eval.score.macro import complete_mean
from eval.text_table import aligned
from pipeline.config import ROOT, compose_tree
from pipeline.dag.inventory import Inventory, changed_at, size_of
from pipeline.dag.status import RunStatus, now, read_status
from pipeline.earlier_runs import RECORD
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.output import say
from pipeline.schema import build

HEADER = ("name", "state", "recipe", "pairs", "BLEU", "age", "alone", "in all")
TEXTS = range(4)  # columns of texts; the others are numbers
MOST_PAIRS = 3  # of a run with more pairs, the number is shown
DELETED = "deleted"  # state of a run whose directory is gone and whose artifacts are not


@dataclass(frozen=True, kw_only=True)
class RunsConfig:
    """The settings of configs/runs.yaml."""

    runtime: RuntimeConfig


def load_runs(overrides: Sequence[str]) -> RunsConfig:
    """Return the configuration of `make runs`. Raises ValueError with what to change."""
    return build(RunsConfig, compose_tree("runs", overrides))


def show_runs(config: RunsConfig) -> None:
    """Print a line for each run, the newest first, and what the store of artifacts takes."""
    runs = ROOT / config.runtime.runs
    inventory = Inventory(ROOT / config.runtime.artifacts, runs)
    if not inventory.uses:
        say(f"no run in {runs}; `make train` begins one")
        return
    rows = [_row(directory, runs, inventory) for directory in sorted(inventory.uses, key=changed_at, reverse=True)]
    say(aligned([HEADER, *rows], left=TEXTS))
    say("")
    say(_store(inventory))


def shown_name(directory: Path, runs: Path) -> str:
    """Return the name by which a user calls a run: the path below `runs`, or the whole path of a run elsewhere."""
    return str(directory.relative_to(runs) if directory.is_relative_to(runs) else directory)


def _row(directory: Path, runs: Path, inventory: Inventory) -> tuple[str, ...]:
    status = read_status(directory)
    recipe, pairs = _about(directory, status)
    used, alone = inventory.uses[directory], inventory.freed_with([directory])
    results = size_of([directory] if directory.exists() else [])
    return (
        shown_name(directory, runs),
        status.state if status is not None else "done" if (directory / RECORD).exists() else DELETED,
        recipe,
        " ".join(pairs) if 0 < len(pairs) <= MOST_PAIRS else f"{len(pairs)} pairs" if pairs else MISSING,
        decimal(_bleu(directory)),
        _age(directory),
        shown_bytes(size_of(inventory.places(alone)) + results),
        shown_bytes(size_of(inventory.places(used | {*alone})) + results),
    )


def _about(directory: Path, status: RunStatus | None) -> tuple[str, Sequence[str]]:
    """Return the recipe and the pairs of a run, as far as it has begun."""
    if status is not None and status.recipe:
        return status.recipe, status.pairs
    if (directory / RECORD).exists():
        record = load_run(directory)
        return record.recipe or MISSING, record.pairs
    return MISSING, ()


def _bleu(directory: Path) -> float | None:
    """Return the mean BLEU of the run's model over its pairs; None before it is scored."""
    scores = directory / "scores.csv"
    rows = load_scores(scores) if scores.exists() else []
    return complete_mean([row.score for row in rows if (row.system, row.metric) == (SYSTEM, "bleu")])


def _age(directory: Path) -> str:
    if not (changed := changed_at(directory)):
        return MISSING
    seconds = (now() - datetime.fromtimestamp(changed, UTC)).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def shown_bytes(size: int) -> str:
    """Return a size with its unit: 163 kB, 3.21 GB."""
    return f"{quantity(size)}B" if size >= 1000 else f"{size} B"


def _store(inventory: Inventory) -> str:
    unused = inventory.unused()
    size = shown_bytes(size_of(inventory.places(inventory.inputs)))
    free = "`make remove UNUSED=1` frees them"
    rest = f", of which {shown_bytes(size_of(inventory.places(unused)))} belong to no run ({free})" if unused else ""
    return f"{len(inventory.uses)} runs; artifacts take {size}{rest}"
