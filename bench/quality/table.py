"""Results of the contest: judged rows, a table for a terminal, and the plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.output import Row, aligned, mark, number, target_columns
from bench.quality.systems import INITIAL, OWN, RECIPE_NAMES, SYSTEMS
from bench.train.contenders import OURS
from eval.report.plots.style import STYLE, new_axes, series_style

COLUMNS = (
    *("system", "configuration", "library", "device", "minutes", "bleu", "ci_low", "ci_high", "n_test", "steps"),
    *("target_tokens", "seconds", "parameters", "vocabulary", "processes", "threads", "signature"),
    *("measured", "limit", "to_limit", "verdict", "note"),
)
HEADER = (
    "system",
    "configuration",
    "minutes",
    "BLEU",
    "95 %",
    "steps",
    "M tokens",
    "tok/s",
    "params",
    "target",
    "note",
)

LINES = {OWN: (":", "s"), OURS: ("-", "o"), INITIAL: ("--", "D")}  # of the plot, by configuration


def judge(rows: Sequence[Row], device: str) -> list[dict[str, Any]]:
    """Return the rows with all columns. The target of ours at a mark is the BLEU of the best peer at that mark."""
    judged = []
    for row in rows:
        values: dict[str, Any] = {**dict.fromkeys(COLUMNS), **row, "device": device}
        if row["system"] == OURS and row.get("bleu"):  # 0 has no ratio
            peers = [other["bleu"] for other in rows if other["system"] != OURS and _same_mark(row, other)]
            values |= target_columns(row["bleu"], max(peers, default=None))
        judged.append(values)
    return judged


def table(rows: Sequence[Row]) -> str:
    """Return the judged rows as a table, with an empty line between entries."""
    lines: list[tuple[str, ...]] = [HEADER]
    previous = None
    for row in rows:
        if previous not in (None, (row["system"], row["configuration"])):
            lines.append(("",) * len(HEADER))
        previous = (row["system"], row["configuration"])
        lines.append((row["system"], row["configuration"], *_numbers(row), mark(row), row["note"] or ""))
    return aligned(lines, left=("system", "configuration", "95 %", "target", "note"))


def head_start(rows: Sequence[Row]) -> str:
    """Return a sentence on when ours has the BLEU that the best peer reaches last, empty without scores of both."""
    scored = [row for row in rows if row.get("bleu") is not None]
    own_rows = sorted((row for row in scored if row["system"] == OURS), key=lambda row: row["minutes"])
    peers = [row for row in scored if row["system"] != OURS]
    if not own_rows or not peers:
        return ""
    last = max(row["minutes"] for row in peers)
    best = max((row for row in peers if row["minutes"] == last), key=lambda row: row["bleu"])
    name = f"{best['system']} ({RECIPE_NAMES[best['configuration']]})"
    peer = f"{name}, the best peer after {last:g} minutes: {best['bleu']:.1f}"
    level = next((row for row in own_rows if row["bleu"] >= best["bleu"]), None)
    if level is None:
        return f"{peer}. Ours reaches {max(row['bleu'] for row in own_rows):.1f} by minute {own_rows[-1]['minutes']:g}."
    return f"{peer}. Ours has as much after {level['minutes']:g} minutes: {level['bleu']:.1f}."


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw BLEU over minutes of training: a line for each entry, a colour for each system, with intervals."""
    import matplotlib as mpl

    scored = [row for row in rows if row["bleu"] is not None]
    entries = list(dict.fromkeys((row["system"], row["configuration"]) for row in scored))
    with mpl.rc_context(STYLE):
        figure, axes = new_axes(10, 4.6)
        for system, configuration in entries:
            points = [row for row in scored if (row["system"], row["configuration"]) == (system, configuration)]
            bleu = [row["bleu"] for row in points]
            errors = [[row["bleu"] - row["ci_low"] for row in points], [row["ci_high"] - row["bleu"] for row in points]]
            minutes = [row["minutes"] for row in points]
            label = OURS if system == OURS else f"{system}, {RECIPE_NAMES[configuration]}"
            line, marker = LINES[configuration]
            colour = series_style(SYSTEMS.index(system)).colour
            axes.errorbar(
                minutes, bleu, yerr=errors, label=label, color=colour, linestyle=line, marker=marker, capsize=2
            )
        axes.set_xlabel("minutes of training")
        axes.set_ylabel("BLEU")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        figure.savefig(path)


def _same_mark(row: Row, other: Row) -> bool:
    return bool(other.get("bleu") is not None and other.get("minutes") == row["minutes"])


def _numbers(row: Row) -> tuple[str, ...]:
    if row["bleu"] is None:
        return ("",) * 7
    interval = f"{row['ci_low']:.1f} to {row['ci_high']:.1f}"
    size = f"{row['parameters'] / 1e6:.1f} M"
    rate = number(row["target_tokens"] / row["seconds"])
    tokens = number(row["target_tokens"] / 1e6, 2)
    return (f"{row['minutes']:g}", number(row["bleu"], 1), interval, number(row["steps"]), tokens, rate, size)
