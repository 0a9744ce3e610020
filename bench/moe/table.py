"""Results of the benchmark: judged rows from measured ones, and a table."""

from collections.abc import Sequence
from typing import Any

from bench.moe.jobs import MATMUL
from bench.moe.targets import DISPATCH_AND_COMBINE, Check, memory_check, ratio, time_check
from bench.output import Row, aligned, mark, number

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
BLOCK = ("section", "dtype", "threads", "experts")  # rows with equal values in these columns were measured in turns
FAMILY = ("section", "dtype", "threads", "variant")  # rows with equal values in these differ in their experts only


def judge(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows with every column: targets, and ratios to the dense layer, to ours and to the block's matmul."""
    judged = [_with_ratios(row, rows) for row in with_sums(rows)]
    for row in judged:
        block = {neighbour["variant"]: neighbour for neighbour in judged if _same(neighbour, row, BLOCK)}
        family = [relative for relative in judged if _same(relative, row, FAMILY)]
        smallest = min(family, key=lambda relative: relative["experts"])
        row |= _columns(time_check(row, block, smallest), "")
        row |= _columns(memory_check(row, block, smallest), "memory_")
    return judged


def with_sums(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, and after every `combine` a row with the sum of dispatch and combine."""
    summed: list[Row] = []
    for row in rows:
        summed.append(row)
        if row["variant"] == "combine" and row.get("ms"):
            dispatch = next(part for part in rows if part["variant"] == "dispatch" and _same(part, row, BLOCK))
            if dispatch.get("ms"):
                sums = {column: row[column] + dispatch[column] for column in ("ms", "ms_least", "ms_most")}
                summed.append({**row, "variant": DISPATCH_AND_COMBINE, **sums})
    return summed


def _with_ratios(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    block = {neighbour["variant"]: neighbour for neighbour in rows if _same(neighbour, row, BLOCK)}
    judged = {column: row.get(column) for column in COLUMNS}
    if row["variant"] != MATMUL:
        judged["to_dense"] = ratio(row, block.get("dense"), "ms")
        judged["to_ours"] = ratio(row, block.get("ours"), "ms")
    if row.get("flops") and row.get("ms"):
        judged["tflops"] = row["flops"] / row["ms"] / 1e9
        peak = block[MATMUL]["flops"] / block[MATMUL]["ms"] / 1e9
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
    """Return the judged rows as a table, with an empty line between blocks."""
    lines: list[tuple[str, ...]] = [HEADER]
    for previous, row in zip((None, *rows[:-1]), rows, strict=True):
        if previous is None or any(previous[key] != row[key] for key in BLOCK):
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
