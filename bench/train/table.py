"""From measured rounds to judged rows, and to a table."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.output import Row, aligned, mark
from bench.train.plan import OURS, Contest
from bench.train.stopwatch import PARTS

SHARES = (*PARTS, "other")
ENGINE = ("forward", "backward", "step")
COLUMNS = (
    *("section", "device", "model", "parameters", "dtype", "variant", "processes", "threads", "rounds", "step_tokens"),
    *("tokens_per_second", "slowest", "fastest", "busy", *SHARES, "outside", "tflops", "peak_tflops", "library", "mfu"),
    *("served", "useful", "measured", "limit", "to_limit", "verdict", "note"),
)
HEADER = (
    *(
        "section",
        "model",
        "params",
        "dtype",
        "variant",
        "proc",
        "thr",
        "tok/step",
        "tok/s",
        "slowest",
        "fastest",
        "busy",
    ),
    *("fwd", "bwd", "step", "data", "log", "coll", "other", "peak", "library", "MFU", "target", "note"),
)
SCALING = 1.8  # tokens/s of all processes over those of one
OUTSIDE = 0.08  # most of the time outside forward, backward and step
MFU = {("cpu", "fp32"): 0.65, ("cpu", "bf16"): 0.50, ("cuda", "bf16"): 0.45}
TO_PEER = 1.2  # our tokens/s over the best peer's
TARGET_MODEL = 512  # M of the models that the MFU of two cores is asked of


def judge(contest: Contest, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """A row for each section and contender of a contest, from its rounds; a contender that failed has its note."""
    judged = []
    keys = dict.fromkeys((row["variant"], row["processes"], row["threads"]) for row in rows)
    grouped = {key: [r for r in rows if (r["variant"], r["processes"], r["threads"]) == key] for key in keys}
    for section in contest.sections:
        for (variant, processes, _), mine in grouped.items():
            if section == "peers" or processes == max(c.processes for c in contest.contenders) or section == "scaling":
                row = summary(contest, section, mine)
                row |= _target(section, contest, variant, mine, grouped)
                judged.append(row)
    return judged


def summary(contest: Contest, section: str, rounds: Sequence[Row]) -> dict[str, Any]:
    """What the rounds of one contender come to: medians of rates, sums of everything else."""
    first = rounds[0]
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"section": section, "device": contest.device, "model": contest.title, "dtype": contest.dtype}
    row |= {name: first[name] for name in ("variant", "processes", "threads")}
    row["note"] = next((r["note"] for r in rounds if r["note"]), "")
    rounds = [r for r in rounds if r.get("seconds")]
    if not rounds:
        return row
    rates = [rate(r) for r in rounds]
    total = {name: sum(r[name] for r in rounds) for name, value in rounds[0].items() if isinstance(value, int | float)}
    seconds = total["seconds"]
    row |= {"parameters": rounds[0]["parameters"], "rounds": len(rounds), "tokens_per_second": median(rates)}
    row |= {"slowest": min(rates), "fastest": max(rates), "step_tokens": total["target_tokens"] / total["steps"]}
    row["busy"] = total["cpu_seconds"] / (seconds * first["processes"] * first["threads"])
    if first["variant"] != OURS:
        return row
    shares = {part: total[part] / (seconds * first["processes"]) for part in PARTS}
    row |= {**shares, "other": 1 - sum(shares.values()), "outside": 1 - sum(shares[part] for part in ENGINE)}
    peak = max(r["peak"] for r in rounds)
    flops = median(r["useful_flops"] / r["seconds"] for r in rounds)
    row |= {"tflops": flops / 1e12, "peak_tflops": peak / 1e12, "library": rounds[0]["library"], "mfu": flops / peak}
    row["served"] = total["useful_flops"] / total["nominal_flops"]
    return row | {"useful": total["useful_flops"] / total["executed_flops"]}


def rate(row: Row) -> float:
    """Real target tokens a second."""
    return float(row["target_tokens"] / row["seconds"])


def _target(
    section: str, contest: Contest, variant: str, mine: Sequence[Row], grouped: Mapping[Any, Sequence[Row]]
) -> dict[str, Any]:
    """Measured value and limit of a row, where it has one."""
    processes = mine[0]["processes"]
    several = processes > 1 or contest.device == "cuda"
    if section == "scaling" and several:
        one = next((rows for (_, count, _), rows in grouped.items() if count == 1), ())
        return _columns(ratio(mine, one), SCALING * processes / 2, at_least=True)
    if section == "overhead" and several:
        return _columns(summary(contest, section, mine)["outside"], OUTSIDE, at_least=False)
    if section == "mfu" and several and contest.model.dim >= TARGET_MODEL:
        return _columns(summary(contest, section, mine)["mfu"], MFU.get((contest.device, contest.dtype)), at_least=True)
    if section == "peers" and variant != OURS:
        ours = next((rows for (name, _, _), rows in grouped.items() if name == OURS), ())
        return _columns(ratio(ours, mine), TO_PEER, at_least=True)
    return {}


def ratio(rows: Sequence[Row], to: Sequence[Row]) -> float | None:
    """Median over the rounds of the ratio of their tokens/s; rounds are side by side in time. A variant that has a
    round of its own is compared with the last of the other."""
    theirs = {row["round"]: rate(row) for row in to if row.get("seconds")}
    ours = {row["round"]: rate(row) for row in rows if row.get("seconds")}
    if not theirs or not ours:
        return None
    common = sorted(set(ours) & set(theirs))
    if not common:
        return ours[max(ours)] / theirs[max(theirs)]
    return median(ours[number] / theirs[number] for number in common)


def _columns(measured: float | None, limit: float | None, *, at_least: bool) -> dict[str, Any]:
    if measured is None or limit is None:
        return {}
    reached = measured >= limit if at_least else measured <= limit
    return {
        "measured": measured,
        "limit": limit,
        "to_limit": limit / measured if at_least else measured / limit,
        "verdict": "ok" if reached else "missed",
    }


def table(rows: Sequence[Row]) -> str:
    """Judged rows, aligned; an empty line between contests and sections. Shares are per cent of the time."""
    lines: list[tuple[str, ...]] = [HEADER]
    before: Row | None = None
    for row in rows:
        if before is None or any(before[key] != row[key] for key in ("section", "model", "dtype")):
            lines.append(("",) * len(HEADER))
        before = row
        lines.append(
            (
                *(
                    row["section"],
                    row["model"],
                    "" if row["parameters"] is None else f"{row['parameters'] / 1e6:.1f} M",
                ),
                *(str(row[key]) for key in ("dtype", "variant", "processes", "threads")),
                *(_number(row[key]) for key in ("step_tokens", "tokens_per_second", "slowest", "fastest")),
                *(_percent(row[key]) for key in ("busy", *SHARES)),
                "" if row["peak_tflops"] is None else f"{row['peak_tflops']:.3f}",
                row["library"] or "",
                _percent(row["mfu"]),
                mark(row),
                row["note"] or "",
            )
        )
    return aligned(lines, left=("section", "model", "dtype", "variant", "library", "target", "note"))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
