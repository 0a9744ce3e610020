"""From measured rounds to judged rows, and to a table."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.decode.plan import CTRANSLATE2, TRANSFORMERS
from bench.output import Row, aligned, mark

COLUMNS = (
    *(
        "model",
        "device",
        "system",
        "precision",
        "way",
        "rounds",
        "tokens_per_second",
        "slowest",
        "fastest",
        "tokens_per_cpu_second",
        "identical",
    ),
    *("rss", "cache", "cache_arithmetic", "measured", "limit", "verdict"),
    *("cache_measured", "cache_limit", "cache_verdict", "note"),
)
HEADER = (
    *("model", "system", "prec", "processes x threads, batch", "tok/s", "slowest", "tok/cpu s", "identical"),
    *("peak MB", "cache MB", "ours / it", "cache / sum", "note"),
)
BASE = "ours flattened"
FASTER = {  # our tokens/s over theirs, in the same precision
    (TRANSFORMERS, "dense"): 2.0,
    (TRANSFORMERS, "moe"): 4.0,
    (CTRANSLATE2, "dense"): 0.7,
}
CACHE = 1.1  # bytes of keys and values over what the arithmetic says


def judge(rows: Sequence[Row], device: str) -> list[dict[str, Any]]:
    """A row for each system of each model, its rates the medians over rounds."""
    keys = dict.fromkeys((row["model"], row["system"], row["precision"]) for row in rows)
    grouped = {key: [r for r in rows if (r["model"], r["system"], r["precision"]) == key] for key in keys}
    return [_judged(key, mine, grouped, device) for key, mine in grouped.items()]


def _judged(key: tuple[str, str, str], mine: Sequence[Row], grouped: Any, device: str) -> dict[str, Any]:
    model, system, precision = key
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"model": model, "device": device, "system": system, "precision": precision, "way": mine[0]["way"]}
    row["note"] = mine[-1]["note"]
    measured = [each for each in mine if "seconds" in each]
    if not measured:
        return row
    rates = [rate(each) for each in measured]
    row |= {"rounds": len(measured), "tokens_per_second": median(rates)}
    row |= {"slowest": min(rates), "fastest": max(rates)}
    row["tokens_per_cpu_second"] = median(each["tokens"] / each["cpu_seconds"] for each in measured)
    row["rss"] = max(each["rss"] for each in measured)
    same = [each for each in grouped.get((model, BASE, "fp32"), ()) if "found" in each]
    if same:
        row["identical"] = identical(measured[0]["found"], same[0]["found"])
    if "cache" in measured[0]:
        row |= {name: measured[0][name] for name in ("cache", "cache_arithmetic")}
        row |= _columns(row["cache"] / row["cache_arithmetic"], CACHE, at_least=False, prefix="cache_")
    ours = {each["round"]: rate(each) for each in grouped.get((model, BASE, precision), ()) if "seconds" in each}
    ratios = [ours[each["round"]] / rate(each) for each in measured if each["round"] in ours]
    if ratios and system != BASE:
        row |= _columns(median(ratios), FASTER.get((system, model)), at_least=True)
    return row


def rate(row: Row) -> float:
    """Output tokens a second, `</s>` counted."""
    return float(row["tokens"] / row["seconds"])


def identical(found: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> float:
    """Share of translations that are the same."""
    return sum(a == b for a, b in zip(found, expected, strict=True)) / len(expected)


def _columns(measured: float, limit: float | None, *, at_least: bool, prefix: str = "") -> dict[str, Any]:
    """Without a limit there is no verdict, and the ratio is there to read."""
    reached = limit is None or (measured >= limit if at_least else measured <= limit)
    verdict = None if limit is None else "ok" if reached else "missed"
    return {f"{prefix}measured": measured, f"{prefix}limit": limit, f"{prefix}verdict": verdict}


def table(rows: Sequence[Row]) -> str:
    """Judged rows, aligned; an empty line between models."""
    lines: list[tuple[str, ...]] = [HEADER]
    for before, row in zip([None, *rows[:-1]], rows, strict=True):
        if before is None or before["model"] != row["model"]:
            lines.append(("",) * len(HEADER))
        ratio = "" if row["measured"] is None else f"{row['measured']:.2f}"
        lines.append(
            (
                *(row["model"], row["system"], row["precision"], row["way"]),
                *(_number(row[name]) for name in ("tokens_per_second", "slowest", "tokens_per_cpu_second")),
                _percent(row["identical"]),
                *(_number(row[name], 1e6) for name in ("rss", "cache")),
                mark(row) or ratio,
                mark(row, "cache_"),
                row["note"],
            )
        )
    left = ("model", "system", "prec", "processes x threads, batch", "ours / it", "cache / sum", "note")
    return aligned(lines, left=left)


def _number(value: float | None, unit: float = 1.0) -> str:
    return "" if value is None else f"{value / unit:,.0f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
