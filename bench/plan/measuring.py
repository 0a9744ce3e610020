"""Running configurations, each in processes of its own."""

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.plan.case import Case
from pipeline.jobs.launch import launch

WARM = 3  # steps before the first that is timed: in the second one ZeRO's memory is there, in the third all of it


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Of one configuration. parameters: of one process. peak, before: bytes of the process that has the most, and of it
    before there was a model. seconds: of the fastest step. slowest: of the slowest. reference: of a fixed product, the
    fastest and the slowest time."""

    parameters: int
    peak: float
    before: float
    seconds: float
    slowest: float
    reference: tuple[float, float]


def measure(case: Case, device: str, *, rounds: int, seconds: float) -> Measured:
    """rounds: of a step each, at most, and no new one after so many seconds."""
    job = {"case": asdict(case), "device": device, "warm": WARM, "rounds": rounds, "seconds": seconds}
    found = start("bench.plan.worker", job, processes=case.world, title=case.name)
    return Measured(
        parameters=found[0]["parameters"],
        peak=max(each["peak"] for each in found),
        before=max(each["before"] for each in found),
        seconds=min(found[0]["steps"]),
        slowest=max(found[0]["steps"]),
        reference=(min(found[0]["reference"]), max(found[0]["reference"])),
    )


def start(module: str, job: dict[str, Any], *, processes: int, title: str) -> list[dict[str, Any]]:
    """What each process wrote."""
    with tempfile.TemporaryDirectory(prefix="bench-plan-") as name:
        directory = Path(name)
        launch(module, job, directory=directory, processes=processes, threads=1, title=title)
        files: Iterable[Path] = (directory / f"measured-{rank}.json" for rank in range(processes))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def reference_drift(found: Mapping[Case, Measured]) -> float:
    """How much slower the fixed product was in the slowest moment than in the fastest, over all measurements."""
    return max(m.reference[1] for m in found.values()) / min(m.reference[0] for m in found.values())
