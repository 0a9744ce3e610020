"""`make sweep`: plan the points, run what they share, then each of them, and write their page (docs/sweeps.md)."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import ROOT
from pipeline.dag.replacement import check_replacement, differences
from pipeline.dag.run_record import commit
from pipeline.earlier_runs import RECORD
from pipeline.files import check_writable, write_atomically
from pipeline.jobs.launch import JobFailed
from pipeline.stopping import Stopped
from pipeline.sweep.config import SweepConfig
from pipeline.sweep.counterparts import warn_of_unequal, with_counterparts
from pipeline.sweep.equal import check_equal, literal, with_common_baselines
from pipeline.sweep.launch import describe, last_lines, launch, own_directory, stop_asked, write_jobs
from pipeline.sweep.page import Page
from pipeline.sweep.points import Point, expand, named
from pipeline.sweep.table import SWEEP, live_table
from pipeline.sweep.table import Point as Row

logger = logging.getLogger(__name__)

SHARED = "shared"  # the job of the stages that all points share


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The points of a sweep.

    runs: its directory, as `runtime.runs` of the points.
    left_out: a line for each dense model that was left out, with the reason.
    """

    name: str
    runs: str
    points: Sequence[Point]
    left_out: Sequence[str]

    @property
    def directory(self) -> Path:
        """The directory of its results."""
        return ROOT / self.runs

    def command(self, target: str, point: Point, name: str) -> list[str]:
        """Return the arguments of `python -m pipeline` for a target of a point, whose run gets this name."""
        return [target, *point.overrides, f"name={literal(name)}", f"runtime.runs={literal(self.runs)}"]

    def shared(self) -> list[str]:
        """Return the targets that run before the points, each with a run directory of its own."""
        return ["data", *(["baselines"] if self.points[0].config.baselines.tiers else [])]

    def to_json(self) -> dict[str, Any]:
        """Return the content of sweep.json."""
        shared = [{"id": name, "directory": name, "role": SHARED, "flops": 0.0} for name in self.shared()]
        return {
            "name": self.name,
            "commit": commit(),
            "points": [*shared, *map(_entry, self.points)],
            "left_out": list(self.left_out),
        }


def plan(config: SweepConfig) -> Sweep:
    """Compose all points and check that they are equal where they must be. Raises ValueError with what to change."""
    points = expand(config)
    check_equal(points)
    points, left_out = with_counterparts(points, config.compare)
    warn_of_unequal(points)
    name = config.name or f"sweep-{points[0].config.recipe}"
    runs = f"{points[0].config.runtime.runs}/{name}"
    points = [named(point, runs) for point in with_common_baselines(points)]
    return Sweep(name=name, runs=runs, points=points, left_out=left_out)


def run_sweep(config: SweepConfig) -> Path:
    """Run the points of a sweep that are not finished; its page is in the returned directory.

    Raises JobFailed with the points that failed, and Stopped where the sweep was asked to stop.
    """
    sweep = plan(config)
    directory, points = sweep.directory, sweep.points
    if (directory / RECORD).exists():
        raise ValueError(f"{directory} is a run, no sweep; give the sweep another name, as NAME=other")
    for point in sweep.points:
        check_replacement(directory / point.id, point.config)
    check_writable(directory, "runtime.runs")
    for line in describe_sweep(sweep):
        logger.info("%s", line)
    with own_directory(directory):
        _record(sweep)
        page = Page(directory, config.losses)
        todo = [point for point in points if not is_done(point, directory)]
        if not todo and page.is_current([point.id for point in points]):
            logger.info("nothing to do: all %d points are done", len(points))
        else:
            _run(config, sweep, todo, page)
    logger.info("report: %s", page.path)
    return directory


def is_done(point: Point, directory: Path) -> bool:
    """Return whether the point's run is finished and was made with the configuration that the point has now."""
    run = directory / point.id
    return (run / RECORD).exists() and not differences(run, point.config)


def describe_sweep(sweep: Sweep) -> list[str]:
    """Return lines for people: every point, its size, and the points that it is compared with."""
    train = sweep.points[0].config.train
    budget = f"{train.max_tokens:,} target tokens" if train.max_tokens else f"{train.max_steps:,} steps"
    rows = [("id", "parameters", "MFLOPs/token", "compared with")]
    by_id = {point.id: point for point in sweep.points}
    for point in sweep.points:
        against = [
            f"{name} ({by_id[name].token_flops / point.token_flops:.3f} of its FLOPs, "
            f"{by_id[name].parameters / point.parameters:.3f} of its parameters)"
            for name in dict.fromkeys(point.compared.values())
        ]
        rows.append((point.id, f"{point.parameters:,}", f"{point.token_flops / 1e6:.2f}", ", ".join(against)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    number = f"{len(sweep.points)} point{'s' * (len(sweep.points) > 1)}"
    lines = [f"sweep {sweep.name}: {number}, {budget} each, in {sweep.directory}"]
    lines += [f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
    return lines + [f"  left out: {line}" for line in sweep.left_out]


def _run(config: SweepConfig, sweep: Sweep, todo: Sequence[Point], page: Page) -> None:
    directory, points = sweep.directory, sweep.points
    jobs = {point.id: [sweep.command("train", point, point.id)] for point in points}
    jobs[SHARED] = [sweep.command(target, points[0], target) for target in sweep.shared()]
    write_jobs(directory, jobs)
    entries = sweep.to_json()["points"]
    rows = [Row(id=entry["id"], directory=directory / entry["directory"], flops=entry["flops"]) for entry in entries]

    def finished() -> list[str]:
        return [point.id for point in points if is_done(point, directory)]

    def attempt(names: Sequence[str]) -> dict[str, int | None]:
        return _attempt(config, directory, names, lambda: page.grow(finished), say)

    with page, live_table(rows, sys.stderr) as say:
        failed = attempt([SHARED]) if todo else {}
        if not failed and todo:
            failed = attempt([point.id for point in todo])
        if names := finished():
            page.write(names)
    if failed:
        raise JobFailed(_failure(directory, failed, len(todo), config.retries + 1))


def _attempt(
    config: SweepConfig,
    directory: Path,
    names: Sequence[str],
    watch: Callable[[], None],
    say: Callable[[str], None],
) -> dict[str, int | None]:
    """Run jobs, and those that fail again, and return the exit codes of those that failed every time."""
    for number in range(config.retries + 1):
        codes = launch(directory, names, config.launcher, watch)
        failed = {name: code for name, code in codes.items() if code != 0}
        if failed and stop_asked(directory):
            raise Stopped(directory.name)
        if not failed:
            break
        names = list(failed)
        if number < config.retries:
            for name, code in failed.items():
                say(f"{name}: {describe(code)}; is started again, {number + 1} of {config.retries}")
    return failed


def _failure(directory: Path, failed: dict[str, int | None], num_points: int, attempts: int) -> str:
    what = "what all points share" if SHARED in failed else f"{len(failed)} of {num_points} points"
    lines = [f"{what} failed in each of {attempts} attempts; the same command tries again"]
    for name, code in failed.items():
        log = directory / f"{name}.log"
        lines += [f"  {name}: {describe(code)}; {log} ends:", last_lines(log)]
    return "\n".join(lines)


def _record(sweep: Sweep) -> None:
    """Write sweep.json, unless it has this content already."""
    path = sweep.directory / SWEEP
    text = json.dumps(sweep.to_json(), ensure_ascii=False, indent=1)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)


def _entry(point: Point) -> dict[str, Any]:
    return {
        "id": point.id,
        "directory": point.id,
        "role": point.role,
        "overrides": list(point.overrides),
        "flops": point.training_flops,
        "token_flops": point.token_flops,
        "parameters": point.parameters,
        "compared": dict(point.compared),
    }
