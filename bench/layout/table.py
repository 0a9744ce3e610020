"""Results of the benchmark: medians of milliseconds, and of each round's ratio to this project's way."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.output import Row, aligned

COLUMNS = (
    *("device", "kind", "way", "dim", "hidden", "tokens", "processes", "rounds"),
    *("cpu_ms", "wall_ms", "cpu_ratio", "cpu_ratio_least", "cpu_ratio_most", "wall_ratio"),
)
OURS = "this project"

Times = Sequence[tuple[float, float]]  # milliseconds of processor and of wall time, by round


def judge(times: Mapping[str, Times], about: Row) -> list[dict[str, Any]]:
    """Return a row for each way.

    times: measured rounds by `<kind>, <way>`.
    about: the columns that all rows share.
    """
    rows = []
    for name, rounds in times.items():
        kind, _, way = name.partition(", ")
        base = times[f"{kind}, {OURS}"]
        pairs = list(zip(rounds, base, strict=True))
        cpu, wall = ([measured[i] / reference[i] for measured, reference in pairs] for i in (0, 1))
        rows.append(
            {
                **about,
                "kind": kind,
                "way": way,
                "rounds": len(rounds),
                "cpu_ms": median(milliseconds for milliseconds, _ in rounds),
                "wall_ms": median(milliseconds for _, milliseconds in rounds),
                "cpu_ratio": median(cpu),
                "cpu_ratio_least": min(cpu),
                "cpu_ratio_most": max(cpu),
                "wall_ratio": median(wall),
            }
        )
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    header = ("kind", "way", "ms", "ratio", "least", "most", "wall ms", "wall ratio")
    lines = [header]
    for row in rows:
        ratios = (row["cpu_ratio"], row["cpu_ratio_least"], row["cpu_ratio_most"])
        cells = (f"{row['cpu_ms']:.1f}", *(f"{ratio:.2f}" for ratio in ratios))
        lines.append((row["kind"], row["way"], *cells, f"{row['wall_ms']:.1f}", f"{row['wall_ratio']:.2f}"))
    return aligned(lines, left=("kind", "way"))
