"""Results of the benchmark: judged rows from measured rounds, and a table."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.output import Row, aligned, mark, number, percent, target_columns
from bench.train.contenders import OURS, Contest
from bench.train.stopwatch import PARTS

SHARES = (*PARTS, "other")
ENGINE = ("forward", "backward", "step")
COLUMNS = (
    *("section", "device", "model", "parameters", "dtype", "variant", "processes", "threads", "rounds", "step_tokens"),
    *("tokens_per_second", "slowest", "fastest", "busy", *SHARES, "outside", "tflops", "peak_tflops", "library", "mfu"),
    *("served", "useful", "measured", "limit", "to_limit", "verdict", "note"),
)
HEADER = (
    *("section", "model", "params", "dtype", "variant", "proc", "thr", "tok/step", "tok/s", "slowest", "fastest"),
    *("busy", "fwd", "bwd", "step", "data", "log", "coll", "other", "peak", "library", "MFU", "target", "note"),
)
SCALING = 1.8  # tokens/s of all processes over those of one
OUTSIDE = 0.08  # greatest share of the time outside forward, backward and step
MFU = {("cpu", "fp32"): 0.65, ("cpu", "bf16"): 0.50, ("cuda", "bf16"): 0.45}
TO_PEER = 1.2  # our tokens/s over the best peer's
TARGET_MODEL = 512  # least dimension of the models that have a target of MFU


def judge(contest: Contest, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row for each section and contender of a contest, from its rounds. A failed contender has a note."""
    judged = []
    keys = dict.fromkeys((row["variant"], row["processes"], row["threads"]) for row in rows)
    grouped = {key: [r for r in rows if (r["variant"], r["processes"], r["threads"]) == key] for key in keys}
    for section in contest.sections:
        for (variant, processes, _), rounds in grouped.items():
            if section == "peers" or processes == max(c.processes for c in contest.contenders) or section == "scaling":
                row = summary(contest, section, rounds)
                row |= _target(section, contest, variant, rounds, grouped)
                judged.append(row)
    return judged


def summary(contest: Contest, section: str, rounds: Sequence[Row]) -> dict[str, Any]:
    """Summarise the rounds of one contender: medians of rates, and sums of everything else."""
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
    """Return real target tokens a second."""
    return float(row["target_tokens"] / row["seconds"])


def _target(
    section: str, contest: Contest, variant: str, rounds: Sequence[Row], grouped: Mapping[Any, Sequence[Row]]
) -> dict[str, Any]:
    """Return the columns of a row's target, none without one."""
    processes = rounds[0]["processes"]
    several = processes > 1 or contest.device == "cuda"
    if section == "scaling" and several:
        single = next((rows for (_, count, _), rows in grouped.items() if count == 1), ())
        return target_columns(ratio(rounds, single), SCALING * processes / 2)
    if section == "overhead" and several:
        return target_columns(summary(contest, section, rounds)["outside"], OUTSIDE, at_least=False)
    if section == "mfu" and several and contest.model.dim >= TARGET_MODEL:
        limit = MFU.get((contest.device, contest.dtype))
        return target_columns(summary(contest, section, rounds)["mfu"], limit)
    if section == "peers" and variant != OURS:
        our_rounds = next((rows for (name, _, _), rows in grouped.items() if name == OURS), ())
        return target_columns(ratio(our_rounds, rounds), TO_PEER)
    return {}


def ratio(rows: Sequence[Row], to: Sequence[Row]) -> float | None:
    """Return the median over the rounds of the ratio of tokens a second, or None without rounds.

    Only rounds of the same number are compared; if the two have none in common, their last rounds are.
    """
    rates, base_rates = ({row["round"]: rate(row) for row in part if row.get("seconds")} for part in (rows, to))
    if not rates or not base_rates:
        return None
    common = sorted(set(rates) & set(base_rates))
    if not common:
        return rates[max(rates)] / base_rates[max(base_rates)]
    return median(rates[number] / base_rates[number] for number in common)


def table(rows: Sequence[Row]) -> str:
    """Return the judged rows as a table, with an empty line between contests. Shares are per cent of the time."""
    lines: list[tuple[str, ...]] = [HEADER]
    previous: Row | None = None
    for row in rows:
        if previous is None or any(previous[key] != row[key] for key in ("section", "model", "dtype")):
            lines.append(("",) * len(HEADER))
        previous = row
        lines.append(
            (
                *(
                    row["section"],
                    row["model"],
                    "" if row["parameters"] is None else f"{row['parameters'] / 1e6:.1f} M",
                ),
                *(str(row[key]) for key in ("dtype", "variant", "processes", "threads")),
                *(number(row[key]) for key in ("step_tokens", "tokens_per_second", "slowest", "fastest")),
                *(percent(row[key]) for key in ("busy", *SHARES)),
                "" if row["peak_tflops"] is None else f"{row['peak_tflops']:.3f}",
                row["library"] or "",
                percent(row["mfu"]),
                mark(row),
                row["note"] or "",
            )
        )
    return aligned(lines, left=("section", "model", "dtype", "variant", "library", "target", "note"))
