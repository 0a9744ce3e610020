"""From measured rows to judged ones, and to a table."""

from collections.abc import Sequence
from typing import Any

from bench.moe.plan import MATMUL
from bench.moe.targets import DISPATCH_AND_COMBINE, Check, memory_check, ratio, time_check
from bench.output import Row, aligned, mark

COLUMNS = (
    *("section", "device", "model", "hidden", "tokens", "experts", "k", "dtype", "library", "threads", "variant"),
    *("ms", "ms_least", "ms_most", "runs", "to_dense", "to_ours", "tflops", "to_matmul"),
    *("measured", "limit", "to_limit", "verdict"),
    *("extra_mb", "accumulating_mb", "memory_measured", "memory_limit", "memory_to_limit", "memory_verdict"),
    "note",
)
HEADER = (
    *("section", "E", "dtype", "thr", "variant", "ms", "/dense", "/ours", "TFLOP/s", "of peak", "target"),
    *("extra MB", "accum. MB", "memory target", "note"),
)
BLOCK = ("section", "dtype", "threads", "experts")  # rows with the same of these were measured side by side
FAMILY = ("section", "dtype", "threads", "variant")  # and these differ in the number of experts only


def judge(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows with every column: ratios to the dense layer, to ours and to the matmul of the same block, and targets."""
    judged = [_with_ratios(row, rows) for row in with_sums(rows)]
    for row in judged:
        beside = {other["variant"]: other for other in judged if _same(other, row, BLOCK)}
        smallest = min((other for other in judged if _same(other, row, FAMILY)), key=lambda other: other["experts"])
        row |= _columns(time_check(row, beside, smallest), "")
        row |= _columns(memory_check(row, beside, smallest), "memory_")
    return judged


def with_sums(rows: Sequence[Row]) -> list[Row]:
    """The rows, and behind every `combine` the sum of it and its dispatch."""
    summed: list[Row] = []
    for row in rows:
        summed.append(row)
        if row["variant"] == "combine" and row.get("ms"):
            dispatch = next(other for other in rows if other["variant"] == "dispatch" and _same(other, row, BLOCK))
            if dispatch.get("ms"):
                summed.append({**row, "variant": DISPATCH_AND_COMBINE, "ms": row["ms"] + dispatch["ms"]})
    return summed


def _with_ratios(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    beside = {other["variant"]: other for other in rows if _same(other, row, BLOCK)}
    judged = {column: row.get(column) for column in COLUMNS}
    if row["variant"] != MATMUL:
        judged["to_dense"] = ratio(row, beside.get("dense"), "ms")
        judged["to_ours"] = ratio(row, beside.get("ours"), "ms")
    if row.get("flops") and row.get("ms"):
        judged["tflops"] = row["flops"] / row["ms"] / 1e9
        peak = beside[MATMUL]["flops"] / beside[MATMUL]["ms"] / 1e9
        judged["to_matmul"] = judged["tflops"] / peak
    return judged


def _same(a: Row, b: Row, keys: Sequence[str]) -> bool:
    return all(a[key] == b[key] for key in keys)


def _columns(check: Check | None, prefix: str) -> dict[str, Any]:
    if check is None:
        return {}
    return {
        f"{prefix}measured": check.measured,
        f"{prefix}limit": check.limit,
        f"{prefix}to_limit": check.to_limit,
        f"{prefix}verdict": check.verdict,
    }


def table(rows: Sequence[Row]) -> str:
    """Judged rows, aligned; blocks are separated by an empty line."""
    lines: list[tuple[str, ...]] = [HEADER]
    for before, row in zip((None, *rows[:-1]), rows, strict=True):
        if before is None or any(before[key] != row[key] for key in BLOCK):
            lines.append(("",) * len(HEADER))
        lines.append(
            (
                *(str(row[key]) for key in ("section", "experts", "dtype", "threads", "variant")),
                *(number(row["ms"], 2), number(row["to_dense"], 3), number(row["to_ours"], 3)),
                *(number(row["tflops"], 3), number(row["to_matmul"], 3), mark(row)),
                *(number(row["extra_mb"], 1), number(row["accumulating_mb"], 1), mark(row, "memory_")),
                row["note"] or "",
            )
        )
    return aligned(lines, left=("section", "dtype", "variant", "target", "memory target", "note"))


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
