"""`make status`: the progress of a run, or of every point of a sweep."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size

from pipeline.config import ROOT, compose_tree
from pipeline.dag.inventory import newest, run_directories
from pipeline.dag.status import STATUS
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.live import WIDTH
from pipeline.output import say
from pipeline.schema import build
from pipeline.spelling import suggestion
from pipeline.sweep.table import SWEEP, Point, Standings, draw, live_table, load_points

LOOK = 2.0  # seconds between looks at the runs


@dataclass(frozen=True, kw_only=True)
class ShowConfig:
    """The settings of configs/status.yaml."""

    run: str
    watch: bool
    runtime: RuntimeConfig


def load_show(overrides: Sequence[str]) -> ShowConfig:
    """Return the configuration of `make status`. Raises ValueError with what to change."""
    return build(ShowConfig, compose_tree("status", overrides))


def show(config: ShowConfig) -> None:
    """Print the table; with `watch` keep it up to date until all is done or Ctrl-C."""
    points = find_points(config.run, ROOT / config.runtime.runs)
    standings = Standings(points)
    if not config.watch:
        width = get_terminal_size().columns if sys.stdout.isatty() else WIDTH
        say("\n".join(draw(standings(), width=width)))
        return
    with live_table(points, sys.stdout):
        while any(standing.state != "done" for standing in standings()):
            time.sleep(LOOK)


def find_points(run: str, runs: Path) -> list[Point]:
    """Return the points of a sweep, or the one run of this name, by default of the one that changed last.

    Raises ValueError where it does not exist.
    """
    if not run:
        last = newest(run_directories(runs))
        if last is None:
            raise ValueError(f"no run was begun in {runs}; `make train` begins one")
        sweep = last.parent
        run = str(sweep if sweep != runs and (sweep / SWEEP).exists() else last)
    for directory in (runs / run, ROOT / run):
        if (directory / SWEEP).exists():
            return load_points(directory)
        if (directory / STATUS).exists():
            return [Point(id=directory.name, directory=directory, flops=0.0)]
        if paths := sorted(path.parent for path in directory.glob(f"*/{STATUS}")):
            return [Point(id=path.name, directory=path, flops=0.0) for path in paths]
    names = sorted(
        {path.relative_to(runs).parts[0] for path in (*runs.glob(f"*/{STATUS}"), *runs.glob(f"*/*/{STATUS}"))}
    )
    raise ValueError(
        f"NAME={run}: {runs / run} holds no {STATUS} and no {SWEEP}, so nothing was begun{suggestion(run, names)}"
    )
