"""Results of the benchmark: predictions beside measurements, with verdicts, and a table."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.output import Row, aligned
from bench.plan.case import Case
from bench.plan.measuring import Measured
from pipeline.plan.plan import make_plan
from pipeline.plan.workload import Device

MEMORY_WITHIN = 0.10
SECONDS_WITHIN = 0.20
CASE = tuple(Case.__dataclass_fields__)
COLUMNS = (
    "device",
    *CASE,
    "parameters",
    "parameters_measured",
    "memory",
    "memory_measured",
    "memory_source",
    "memory_ratio",
    "phase",
    "seconds",
    "seconds_measured",
    "seconds_ratio",
    "slowest",
    "reference_fastest",
    "reference_slowest",
    "verdict",
)


def row(case: Case, device: Device, measured: Measured, name: str) -> dict[str, Any]:
    """Return the row of a case. Its ratios are predicted over measured values."""
    plan = make_plan(case.workload, case.setup, device)
    memory = plan.memory.total
    columns: dict[str, Any] = {
        "device": name,
        **asdict(case),
        "parameters": plan.parameters.per_device,
        "parameters_measured": measured.parameters,
        "memory": memory,
        "memory_measured": measured.peak,
        "memory_source": measured.memory_source,
        "memory_ratio": memory / measured.peak,
        "phase": plan.memory.phase,
        "seconds": plan.step.seconds,
        "seconds_measured": measured.seconds,
        "seconds_ratio": plan.step.seconds / measured.seconds,
        "slowest": measured.slowest,
        "reference_fastest": measured.reference[0],
        "reference_slowest": measured.reference[1],
    }
    return {**columns, "verdict": verdict(columns)}


def verdict(row: Row) -> str:
    """Return `met`, or the targets that are missed."""
    missed = []
    if row["parameters"] != row["parameters_measured"]:
        missed.append("parameters")
    if abs(row["memory_ratio"] - 1) > MEMORY_WITHIN:
        missed.append("memory")
    if abs(row["seconds_ratio"] - 1) > SECONDS_WITHIN:
        missed.append("seconds")
    return "missed: " + ", ".join(missed) if missed else "met"


def table(rows: Sequence[Row]) -> str:
    header = ["configuration", "parameters", "MB", "measured", "ratio", "s a step", "measured", "ratio", ""]
    lines = [header]
    for judged in rows:
        case = Case(**{field: judged[field] for field in CASE})
        lines.append(
            [
                case.name,
                f"{judged['parameters_measured']:,}",
                f"{judged['memory'] / 1e6:.0f}",
                f"{judged['memory_measured'] / 1e6:.0f}",
                f"{judged['memory_ratio']:.2f}",
                f"{judged['seconds']:.3f}",
                f"{judged['seconds_measured']:.3f}",
                f"{judged['seconds_ratio']:.2f}",
                judged["verdict"],
            ]
        )
    return aligned(lines, left=("configuration", ""))
