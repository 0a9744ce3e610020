"""`make verify`: the same global batches on every topology against plain torch, as a table."""

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from pipeline.parallel.launch import launch
from pipeline.schema import build
from pipeline.verify.config import Case, VerifyConfig, VerifyJob, cases_of

WORKER = "pipeline.verify"


def parse(arguments: Sequence[str]) -> VerifyConfig:
    """From `key=value`, values in YAML."""
    values = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise ValueError(f"{argument!r} is not key=value")
        values[key] = yaml.safe_load(value)
    return build(VerifyConfig, values)


def verify(config: VerifyConfig) -> None:
    """Run and compare everything, printing a row each. Raises ValueError where something is beyond its bound."""
    from pipeline.verify.comparison import Row, compare_bf16, compare_case
    from pipeline.verify.table import heading, line

    def rows(cases: Sequence[Case], directory: Path) -> Iterator[Row]:
        plain = {(case.gate, case.groups, case.precision): case for case in cases if not case.ep}
        for (gate, groups, precision), case in plain.items():
            if precision == "bf16" and (gate, groups, "fp32") in plain:
                yield compare_bf16(case, plain[gate, groups, "fp32"], directory)
        for case in cases:
            if case.ep:
                yield compare_case(case, directory)

    began, number = time.monotonic(), 0
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="babelshard-verify-") as name:
        directory = Path(name)
        print(heading(config.steps), flush=True)
        for world, cases in plan(config).items():
            _launch(cases, world, config, directory)
            for row in rows(cases, directory):
                print(line(row), flush=True)
                number += 1
                failures += row.failures()
    print(f"{number} comparisons, {len(failures)} beyond their bounds, {time.monotonic() - began:.0f} s")
    if failures:
        raise ValueError("not the same on every topology:\n  " + "\n  ".join(failures))


def plan(config: VerifyConfig) -> dict[int, list[Case]]:
    """Runs by number of processes; first of all, in one process, those of plain torch."""
    cases = {world: cases_of(config, world) for world in sorted(config.worlds)}
    return {1: [*references(case for found in cases.values() for case in found), *cases.pop(1, [])], **cases}


def references(cases: Iterable[Case]) -> list[Case]:
    """What plain torch has to run for these: marked by ep=0, each once."""
    found = {case.reference: replace(case, world=1, ep=0, zero_stage=0, replayed=False) for case in cases}
    return list(found.values())


def _launch(cases: list[Case], world: int, config: VerifyConfig, directory: Path) -> None:
    """All of them in one launch."""
    title = f"{world} process{'es' if world > 1 else ''}: {len(cases)} runs of {config.steps} steps"
    print(f"{title} …", file=sys.stderr, flush=True)
    job = VerifyJob(
        cases=cases, steps=config.steps, optimizer=config.optimizer, timeout=config.timeout, out=str(directory)
    )
    launch(WORKER, asdict(job), directory=directory / f"world-{world}", processes=world, threads=1, title=title)
