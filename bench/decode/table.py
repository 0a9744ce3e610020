"""Results of the benchmark: judged rows from measured rounds, and a table."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.decode.systems import CTRANSLATE2, TRANSFORMERS
from bench.output import Row, aligned, mark, number, percent

COLUMNS = (
    *("model", "device", "system", "precision", "way", "rounds", "tokens_per_second", "slowest", "fastest"),
    *("tokens_per_cpu_second", "identical"),
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
CACHE = 1.1  # bytes of keys and values, measured over those by arithmetic


def judge(rows: Sequence[Row], device: str) -> list[dict[str, Any]]:
    """Return a row for each system of each model. Its rates are medians over rounds."""
    keys = dict.fromkeys((row["model"], row["system"], row["precision"]) for row in rows)
    grouped = {key: [r for r in rows if (r["model"], r["system"], r["precision"]) == key] for key in keys}
    return [_judged(key, rounds, grouped, device) for key, rounds in grouped.items()]


def _judged(key: tuple[str, str, str], rounds: Sequence[Row], grouped: Any, device: str) -> dict[str, Any]:
    model, system, precision = key
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"model": model, "device": device, "system": system, "precision": precision, "way": rounds[0]["way"]}
    row["note"] = rounds[-1]["note"]
    measured = [round_row for round_row in rounds if "seconds" in round_row]
    if not measured:
        return row
    rates = list(map(rate, measured))
    row |= {"rounds": len(measured), "tokens_per_second": median(rates)}
    row |= {"slowest": min(rates), "fastest": max(rates)}
    row["tokens_per_cpu_second"] = median(round_row["tokens"] / round_row["cpu_seconds"] for round_row in measured)
    row["rss"] = max(round_row["rss"] for round_row in measured)
    expected = [base_row["found"] for base_row in grouped.get((model, BASE, "fp32"), ()) if "found" in base_row]
    if expected:
        row["identical"] = identical(measured[0]["found"], expected[0])
    if "cache" in measured[0]:
        row |= {name: measured[0][name] for name in ("cache", "cache_arithmetic")}
        row |= _columns(row["cache"] / row["cache_arithmetic"], CACHE, at_least=False, prefix="cache_")
    base_rows = [base_row for base_row in grouped.get((model, BASE, precision), ()) if "seconds" in base_row]
    base_rates = {base_row["round"]: rate(base_row) for base_row in base_rows}
    ratios = [base_rates[row["round"]] / rate(row) for row in measured if row["round"] in base_rates]
    if ratios and system != BASE:
        row |= _columns(median(ratios), FASTER.get((system, model)), at_least=True)
    return row


def rate(row: Row) -> float:
    """Return output tokens a second, with `</s>`."""
    return float(row["tokens"] / row["seconds"])


def identical(translations: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> float:
    """Return the share of translations that are the same."""
    return sum(a == b for a, b in zip(translations, expected, strict=True)) / len(expected)


def _columns(measured: float, limit: float | None, *, at_least: bool, prefix: str = "") -> dict[str, Any]:
    """Return the columns of a target. Without a limit they have the ratio, but no verdict."""
    reached = limit is None or (measured >= limit if at_least else measured <= limit)
    verdict = None if limit is None else "ok" if reached else "missed"
    return {f"{prefix}measured": measured, f"{prefix}limit": limit, f"{prefix}verdict": verdict}


def table(rows: Sequence[Row]) -> str:
    """Return the judged rows as a table, with an empty line between models."""
    lines: list[tuple[str, ...]] = [HEADER]
    for previous, row in zip([None, *rows[:-1]], rows, strict=True):
        if previous is None or previous["model"] != row["model"]:
            lines.append(("",) * len(HEADER))
        ratio = "" if row["measured"] is None else f"{row['measured']:.2f}"
        lines.append(
            (
                *(row["model"], row["system"], row["precision"], row["way"]),
                *(number(row[name]) for name in ("tokens_per_second", "slowest", "tokens_per_cpu_second")),
                percent(row["identical"]),
                *(number(row[name] and row[name] / 1e6) for name in ("rss", "cache")),
                mark(row) or ratio,
                mark(row, "cache_"),
                row["note"],
            )
        )
    left = ("model", "system", "prec", "processes x threads, batch", "ours / it", "cache / sum", "note")
    return aligned(lines, left=left)
