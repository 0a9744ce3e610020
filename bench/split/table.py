"""Rows of the split: measured and planned seconds of each part, beside the shares that GShard shows."""

from statistics import median
from typing import Any

from bench.output import Row, aligned, number, percent
from bench.split.parts import OTHER, PARTS
from bench.split.subject import SETUP
from pipeline.plan.plan import make_plan
from pipeline.plan.workload import Device, Workload

IDLE, STEP = "idle", "step"
AROUND = ("embedding", "logits", "optimizer")  # not in GShard's Figure 8, which has the layers alone
# Shares of MoE and Transformer layers on 128 and on 2,048 TPU cores with one expert each (arXiv:2006.16668, section 5.2
# and Figure 8). The gate at 2,048 is an upper bound; at 128 it is "negligible".
GSHARD: dict[str, tuple[float | None, float | None]] = {"all_to_all": (0.16, 0.36), "gate": (0.0, 0.10)}
COLUMNS = (
    *("device", "model", "precision", "groups", "rates", "part", "seconds", "share", "layer_share"),
    *("planned", "planned_share", "planned_layer_share", "gshard_128", "gshard_2048"),
    *("tokens_per_second", "mfu", "planned_mfu", "peak", "memory", "memory_source"),
)


def rows_of(workload: Workload, rates: Device, measured: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a row for each part, and one for the whole step, which was timed without the profiler.

    measured: as the worker returns it. A GPU's time in no part is `idle`.
    """
    plan, seconds = make_plan(workload, SETUP, rates).step, median(measured["steps"])
    spent = dict(measured["parts"])
    if rates.kind == "cuda":
        spent[IDLE] = max(0.0, seconds - sum(spent.values()))
    planned = {part: plan.parts.get(part, 0.0) for part in PARTS}
    planned["attention"] += plan.parts["projections"]
    common = {
        "device": name,
        "model": workload.recipe,
        "precision": workload.precision,
        "groups": workload.groups_per_step,
        "rates": rates.name,
    }

    def share(part: str, values: dict[str, float], *, layers: bool) -> float | None:
        if part not in values or (layers and (part not in PARTS or part in AROUND)):
            return None
        return values[part] / sum(v for p, v in values.items() if not layers or (p in PARTS and p not in AROUND))

    rows: list[dict[str, Any]] = []
    for part in (*PARTS, OTHER, *([IDLE] if IDLE in spent else [])):
        rows.append(
            {
                **common,
                "part": part,
                "seconds": spent[part],
                "share": share(part, spent, layers=False),
                "layer_share": share(part, spent, layers=True),
                "planned": planned.get(part),
                "planned_share": share(part, planned, layers=False),
                "planned_layer_share": share(part, planned, layers=True),
                "gshard_128": GSHARD.get(part, (None, None))[0],
                "gshard_2048": GSHARD.get(part, (None, None))[1],
            }
        )
    whole = {
        "part": STEP,
        "seconds": seconds,
        "planned": plan.seconds,
        "tokens_per_second": workload.groups_per_step * workload.target_tokens / seconds,
        "mfu": measured["useful"] / seconds / measured["peak"],
        "planned_mfu": plan.mfu,
        "peak": measured["peak"],
        "memory": measured["memory"],
        "memory_source": measured["memory_source"],
    }
    return [*rows, {**common, **whole}]


def table(rows: list[dict[str, Any]]) -> str:
    lines = [["part", "ms", "%", "% of layers", "planned ms", "%", "% of layers", "GShard 128", "2048"]]
    for row in rows:
        lines.append([row["part"], *milliseconds(row, "seconds"), *milliseconds(row, "planned"), *gshard(row)])
    whole: Row = rows[-1]
    summary = (
        f"{whole['tokens_per_second']:,.0f} target tokens/s, MFU {percent(whole['mfu'])} % of "
        f"{whole['peak'] / 1e12:.1f} TFLOP/s, planned {percent(whole['planned_mfu'])} % of the peak in {whole['rates']}"
    )
    return aligned(lines, left=("part",)) + "\n\n" + summary


def milliseconds(row: Row, column: str) -> list[str]:
    prefix = "planned_" if column == "planned" else ""
    value = row[column]
    shares = [percent(row.get(f"{prefix}{name}")) for name in ("share", "layer_share")]
    return [number(None if value is None else 1e3 * value, 1), *shares]


def gshard(row: Row) -> list[str]:
    return [percent(row.get(column)) for column in ("gshard_128", "gshard_2048")]
