"""Results of the benchmark: judged rows from measured rounds, and a table."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.data.scale import AGAINST, OURS, SENTENCEPIECE
from bench.output import Row, aligned, mark, number, target_columns

COLUMNS = (
    *("section", "device", "text", "variant", "threads", "rounds", "rows", "kept", "pairs_per_second", "slowest"),
    *("fastest", "useful", "measured", "limit", "to_limit", "verdict", "note"),
)
HEADER = ("section", "variant", "threads", "rows", "kept", "pairs/s", "slowest", "fastest", "target", "note")
CLEANING = 60_000  # pairs a second and core, without language identification and near duplicates
TO_PEER = 3.0  # our pairs a second over OpusFilter's
USEFUL = 0.9  # useful over executed FLOPs of a step, for the 38 pairs
TO_SENTENCEPIECE = 0.9  # our pairs a second over those of its batch encoder


def judge(rows: Sequence[Row], device: str) -> list[dict[str, Any]]:
    """Return a row for each contender of a section, from its rounds. A contender that failed has a note."""
    keys = dict.fromkeys((row["section"], row["variant"], row["threads"]) for row in rows)
    grouped = {key: [r for r in rows if (r["section"], r["variant"], r["threads"]) == key] for key in keys}
    judged = []
    for (section, variant, threads), rounds in grouped.items():
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row |= {name: rounds[-1][name] for name in ("section", "text", "variant", "threads", "rows", "kept", "note")}
        row["device"] = device
        rates = [rate(measured) for measured in rounds if measured["seconds"]]
        if rates:
            row |= {"rounds": len(rates), "pairs_per_second": median(rates)}
            row |= {"slowest": min(rates), "fastest": max(rates)}
            row |= _target(section, variant, threads, rounds, grouped)
        judged.append(row)
    return judged


def rate(row: Row) -> float:
    """Return pairs a second."""
    return float(row["rows"] / row["seconds"])


def _target(
    section: str, variant: str, threads: int, rounds: Sequence[Row], grouped: Mapping[Any, Sequence[Row]]
) -> dict[str, Any]:
    """Return the columns of a row's target, none without one. A peer is measured by how much faster ours is."""
    if section == "packing":
        return {"useful": rounds[-1]["useful"], **target_columns(rounds[-1]["useful"], USEFUL)}
    if (section, variant) == ("cleaning", OURS):
        return target_columns(median(map(rate, rounds)), CLEANING)
    our_rounds = grouped.get((section, AGAINST.get(variant, OURS), threads), ())
    if section == "cleaning" and variant in AGAINST:
        return target_columns(ratio(our_rounds, rounds), TO_PEER)
    if (section, variant) == ("encoding", SENTENCEPIECE):
        return target_columns(ratio(our_rounds, rounds), TO_SENTENCEPIECE)
    return {}


def ratio(rows: Sequence[Row], to: Sequence[Row]) -> float | None:
    """Return the median over the rounds of the ratio of pairs a second. Only rounds of the same number are compared."""
    rate_of = {row["round"]: rate(row) for row in to if row["seconds"]}
    ratios = [rate(row) / rate_of[row["round"]] for row in rows if row["round"] in rate_of]
    return median(ratios) if ratios else None


def table(rows: Sequence[Row]) -> str:
    """Return the judged rows as a table, with an empty line between sections."""
    lines: list[tuple[str, ...]] = [HEADER]
    previous = ""
    for row in rows:
        if previous != row["section"]:
            lines.append(("",) * len(HEADER))
        previous = row["section"]
        lines.append(
            (
                *(row["section"], row["variant"]),
                *(number(row[name]) for name in ("threads", "rows", "kept")),
                *(number(row[name]) for name in ("pairs_per_second", "slowest", "fastest")),
                *(mark(row), row["note"]),
            )
        )
    return aligned(lines, left=("section", "variant", "target", "note"))
