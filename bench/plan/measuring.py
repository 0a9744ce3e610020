"""Measurement of configurations, each in processes of its own."""

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.plan.case import Case
from pipeline.jobs.launch import launch

WARM = 3  # steps before the first timed one, until ZeRO has allocated all of its memory


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The measurement of one configuration.

    parameters: parameters of one process.
    peak: bytes of the process that has most.
    before: bytes of a process before it has a model, at most.
    memory_source: who counted these bytes (`pipeline.train.measure.MEMORY_SOURCES`).
    seconds, slowest: seconds of the fastest and of the slowest step.
    reference: seconds of a fixed product, the fastest and the slowest.
    """

    parameters: int
    peak: float
    before: float
    memory_source: str
    seconds: float
    slowest: float
    reference: tuple[float, float]


def measure(case: Case, device: str, *, rounds: int, seconds: float) -> Measured:
    """Measure a configuration. rounds: most timed steps. seconds: no timed step begins after so long."""
    job = {"case": asdict(case), "device": device, "warm": WARM, "rounds": rounds, "seconds": seconds}
    results = start("bench.plan.worker", job, processes=case.world, title=case.name)
    first = results[0]
    return Measured(
        parameters=first["parameters"],
        peak=max(result["peak"] for result in results),
        before=max(result["before"] for result in results),
        memory_source=first["memory_source"],
        seconds=min(first["steps"]),
        slowest=max(first["steps"]),
        reference=(min(first["reference"]), max(first["reference"])),
    )


def start(module: str, job: dict[str, Any], *, processes: int, title: str) -> list[dict[str, Any]]:
    """Run a module in several processes, and return the result that each of them wrote."""
    with tempfile.TemporaryDirectory(prefix="bench-plan-") as name:
        directory = Path(name)
        launch(module, job, directory=directory, processes=processes, threads=1, title=title)
        files: Iterable[Path] = (directory / f"measured-{rank}.json" for rank in range(processes))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def reference_drift(measured: Mapping[Case, Measured]) -> float:
    """Return the slowest time of the fixed product over its fastest time, in all measurements."""
    references = [result.reference for result in measured.values()]
    return max(slowest for _, slowest in references) / min(fastest for fastest, _ in references)
