"""From measured rounds to judged rows, and to a table."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.data.plan import AGAINST, OURS, SENTENCEPIECE
from bench.output import Row, aligned, mark

COLUMNS = (
    *("section", "device", "text", "variant", "threads", "rounds", "rows", "kept", "pairs_per_second", "slowest"),
    *("fastest", "useful", "measured", "limit", "to_limit", "verdict", "note"),
)
HEADER = ("section", "variant", "threads", "rows", "kept", "pairs/s", "slowest", "fastest", "target", "note")
CLEANING = 60_000  # pairs a second and core, without language identification and near duplicates
TO_PEER = 3.0  # our pairs a second over OpusFilter's
USEFUL = 0.9  # of the FLOPs of a step, asked for the 38 pairs
TO_SENTENCEPIECE = 0.9  # ours over those of its batch encoder


def judge(rows: Sequence[Row], device: str) -> list[dict[str, Any]]:
    """A row for each contender of a section, from its rounds; one that failed has its note."""
    keys = dict.fromkeys((row["section"], row["variant"], row["threads"]) for row in rows)
    grouped = {key: [r for r in rows if (r["section"], r["variant"], r["threads"]) == key] for key in keys}
    judged = []
    for (section, variant, threads), mine in grouped.items():
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row |= {name: mine[-1][name] for name in ("section", "text", "variant", "threads", "rows", "kept", "note")}
        row["device"] = device
        rates = [rate(each) for each in mine if each["seconds"]]
        if rates:
            row |= {"rounds": len(rates), "pairs_per_second": median(rates)}
            row |= {"slowest": min(rates), "fastest": max(rates)}
            row |= _target(section, variant, threads, mine, grouped)
        judged.append(row)
    return judged


def rate(row: Row) -> float:
    """Pairs a second."""
    return float(row["rows"] / row["seconds"])


def _target(
    section: str, variant: str, threads: int, mine: Sequence[Row], grouped: Mapping[Any, Sequence[Row]]
) -> dict[str, Any]:
    """Measured value and limit of a row, where it has one: of a peer, how much faster ours is."""
    if section == "packing":
        return {"useful": mine[-1]["useful"], **_columns(mine[-1]["useful"], USEFUL)}
    if (section, variant) == ("cleaning", OURS):
        return _columns(median(map(rate, mine)), CLEANING)
    ours = grouped.get((section, AGAINST.get(variant, OURS), threads), ())
    if section == "cleaning" and variant in AGAINST:
        return _columns(ratio(ours, mine), TO_PEER)
    if (section, variant) == ("encoding", SENTENCEPIECE):
        return _columns(ratio(ours, mine), TO_SENTENCEPIECE)
    return {}


def ratio(rows: Sequence[Row], to: Sequence[Row]) -> float | None:
    """Median over the rounds of the ratio of their pairs a second; rounds are side by side in time."""
    theirs = {row["round"]: rate(row) for row in to if row["seconds"]}
    found = [rate(row) / theirs[row["round"]] for row in rows if row["round"] in theirs]
    return median(found) if found else None


def _columns(measured: float | None, limit: float) -> dict[str, Any]:
    if measured is None:
        return {}
    verdict = "ok" if measured >= limit else "missed"
    return {"measured": measured, "limit": limit, "to_limit": limit / measured, "verdict": verdict}


def table(rows: Sequence[Row]) -> str:
    """Judged rows, aligned; an empty line between sections."""
    lines: list[tuple[str, ...]] = [HEADER]
    before = ""
    for row in rows:
        if before != row["section"]:
            lines.append(("",) * len(HEADER))
        before = row["section"]
        lines.append(
            (
                *(row["section"], row["variant"]),
                *(_number(row[name]) for name in ("threads", "rows", "kept")),
                *(_number(row[name]) for name in ("pairs_per_second", "slowest", "fastest")),
                *(mark(row), row["note"]),
            )
        )
    return aligned(lines, left=("section", "variant", "target", "note"))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
