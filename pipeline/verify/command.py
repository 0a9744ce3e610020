"""`make verify` runs the same global batches on every topology and compares them with plain torch in a table."""

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from pipeline.jobs.launch import launch
from pipeline.schema import build
from pipeline.verify.config import MAIN_GATE, OF_RECIPES, RESUMED, Case, Target, VerifyConfig, VerifyJob, cases_of

if TYPE_CHECKING:
    from pipeline.verify.comparison import Row

WORKER = "pipeline.verify"


def parse(arguments: Sequence[str]) -> VerifyConfig:
    """Read the configuration from arguments `key=value`, with values in YAML. Raises ValueError."""
    values = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise ValueError(f"{argument} is no key=value, as in steps=3; docs/verify.md has the keys")
        try:
            values[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ValueError(f"{argument} cannot be read; close its brackets, or quote the value") from error
    return build(VerifyConfig, values)


def verify(config: VerifyConfig) -> None:
    """Run all cases and print a row for each comparison. Raises ValueError if a deviation is beyond its bound."""
    from pipeline.verify.table import heading, line, resumed_heading

    if config.device == "cuda":
        check_worlds(config)
    began, number = time.monotonic(), 0
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="babelshard-verify-") as name:
        jobs = plan(config, Path(name))
        first = jobs[0][1]
        print(heading(first.steps, first.short), flush=True)
        for world, job in jobs:
            _launch(job, world)
            for row in _rows(job):
                print(line(row), flush=True)
                number += 1
                failures += row.failures()
        resumed = list(_resumed_rows(jobs))
        if resumed:
            print(resumed_heading(first.saved_step + 1, first.short))
        for row, pairs in resumed:
            print(line(row), flush=True)
            number += len(pairs)
            failures += [failure for pair in pairs for failure in pair.failures()]
    print(f"{number} comparisons, {len(failures)} beyond their bounds, {time.monotonic() - began:.0f} s")
    if failures:
        raise ValueError("not the same on every topology:\n  " + "\n  ".join(failures))


def check_worlds(config: VerifyConfig) -> None:
    """Raise ValueError if a world has more processes than this machine has CUDA devices."""
    import torch

    if max(config.worlds) > (devices := torch.cuda.device_count()):
        raise ValueError(
            f"device=cuda with worlds={config.worlds}: torch finds {devices} CUDA devices here, and each process needs "
            "one; " + (f"take worlds={list(range(1, devices + 1))} or fewer" if devices else "leave out device=cuda")
        )


def plan(config: VerifyConfig, directory: Path) -> list[tuple[int, VerifyJob]]:
    """Return jobs with their numbers of processes. The first one has one process and all runs of plain torch.

    A world is launched again if one of its topologies continues from the checkpoint of a larger world.
    """
    worlds = sorted(config.worlds)
    cases = {world: cases_of(config, world) for world in worlds}
    all_cases = [case for world_cases in cases.values() for case in world_cases]
    savers = checkpointed(all_cases, config)

    def job(cases: list[Case], targets: list[Target]) -> VerifyJob:
        return VerifyJob(
            cases=cases,
            targets=targets,
            saved=[case.name for case in savers],
            steps=config.steps,
            optimizer=config.optimizer,
            device=config.device,
            timeout=config.timeout,
            out=str(directory),
        )

    def targets(world: int, *, larger: bool) -> list[Target]:
        candidates = [
            Target(case=case, sources=[s for s in savers if s != case and (s.world > world) == larger])
            for case in savers
            if case.world == world
        ]
        return [target for target in candidates if target.sources]

    jobs = [(1, job([*references(all_cases), *cases.pop(1, [])], targets(1, larger=False)))]
    jobs += [(world, job(runs, targets(world, larger=False))) for world, runs in cases.items() if runs]
    return jobs + [(world, job([], again)) for world in worlds if (again := targets(world, larger=True))]


def references(cases: Iterable[Case]) -> list[Case]:
    """Return the runs of plain torch that these cases need, each once and marked by ep=0."""
    runs: dict[str, Case] = {}
    for case in cases:
        runs[case.reference] = replace(case, world=1, layout="gshard", ep=0, mp=1, zero_stage=0, replayed=False)
    return list(runs.values())


def checkpointed(cases: Iterable[Case], config: VerifyConfig) -> list[Case]:
    """Return one case for each topology of the recipes' layouts, with ZeRO stages in turn.

    Each of them saves a checkpoint and continues from those of the others.
    """
    if not config.resume or config.steps <= RESUMED:
        return []
    stages: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        if case.layout in OF_RECIPES and case.gate == MAIN_GATE and case.precision == "float64":
            stages.setdefault((case.layout, case.mesh), []).append(case)
    choices = [[case for case in same if case.groups == config.groups[0]] for same in stages.values()]
    return [same[number % len(same)] for number, same in enumerate(choices) if same]


def _rows(job: VerifyJob) -> "Iterator[Row]":
    from pipeline.verify.comparison import compare_bf16, compare_case

    plain = {(case.gate, case.groups, case.precision): case for case in job.cases if not case.ep}
    for (gate, groups, precision), case in plain.items():
        if precision == "bf16" and (gate, groups, "fp32") in plain:
            yield compare_bf16(case, plain[gate, groups, "fp32"], Path(job.out))
    for case in job.cases:
        if case.ep:
            yield compare_case(case, Path(job.out))


def _resumed_rows(jobs: Sequence[tuple[int, VerifyJob]]) -> "Iterator[tuple[Row, list[Row]]]":
    """Yield one row for each topology, the worst of its comparisons, and all of them."""
    from pipeline.verify.comparison import compare_resumption, worst

    rows: dict[Case, list[Row]] = {}
    for _, job in jobs:
        for target in job.targets:
            pairs = [compare_resumption(target, s, job.saved_step + 1, Path(job.out)) for s in target.sources]
            rows.setdefault(target.case, []).extend(pairs)
    for case, pairs in rows.items():
        yield worst(case, pairs), pairs


def _launch(job: VerifyJob, world: int) -> None:
    """Run a job in one launch."""
    resumed = sum(len(target.sources) for target in job.targets)
    counts = [f"{number} {name}" for number, name in ((len(job.cases), "runs"), (resumed, "resumptions")) if number]
    title = f"{world} process{'es' if world > 1 else ''}: {', '.join(counts)}"
    print(f"{title} …", file=sys.stderr, flush=True)
    directory = Path(job.out) / f"world-{world}"
    launch(WORKER, asdict(job), directory=directory, processes=world, threads=1, title=title)
