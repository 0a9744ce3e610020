"""Target tokens that systems need to a validation loss (GShard, arXiv:2006.16668, Table 2, has those of training)."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.experiment.contrasts import load_systems
from bench.output import Row, aligned
from eval.number_format import decimal, quantity
from eval.records.run_record import LossPoint, load_losses

COLUMNS = ("system", "num_seeds", "loss", "tokens", "fewest", "most", "share_of_first")


def measure(directories: Sequence[Path], losses: Sequence[float]) -> list[dict[str, Any]]:
    """Return a row for each loss and system: the mean tokens of its seeds, the fewest and the most.

    `share_of_first` is the mean over that of the first system. The numbers are None where a seed has not come so far.

    directories: of finished runs. Those that differ in the seed alone are one system.
    losses: mean cross-entropies of the development sets, in nats a token.
    Raises ValueError as `load_results`.
    """
    curves = {
        system.label: [load_losses(run.directory, "validation") for run in system.runs]
        for system in load_systems(directories)
    }
    rows = []
    for loss in losses:
        needed = {label: _of_seeds([tokens_to(curve, loss) for curve in seeds]) for label, seeds in curves.items()}
        first = next(iter(needed.values()))["tokens"]
        for label, numbers in needed.items():
            tokens = numbers["tokens"]
            share = tokens / first if tokens and first else None
            about = {"system": label, "num_seeds": len(curves[label]), "loss": loss}
            rows.append({**about, **numbers, "share_of_first": share})
    return rows


def tokens_to(curve: Sequence[LossPoint], loss: float) -> float | None:
    """Return the target tokens at which the curve falls to `loss` for the first time; None where it does not.

    Between two validations the loss is taken to fall linearly with the logarithm of the tokens. A curve that begins
    below `loss` gives None too.
    """
    for before, after in pairwise(curve):
        if before.cross_entropy > loss >= after.cross_entropy:
            share = (before.cross_entropy - loss) / (before.cross_entropy - after.cross_entropy)
            return float(before.target_tokens * math.pow(after.target_tokens / before.target_tokens, share))
    return None


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [["loss", "system", "seeds", "tokens", "fewest", "most", "÷ first"]]
    for row in rows:
        tokens = [quantity(row[name]) for name in ("tokens", "fewest", "most")]
        loss, share = decimal(row["loss"], 2), decimal(row["share_of_first"], 3)
        lines.append([loss, row["system"], str(row["num_seeds"]), *tokens, share])
    return aligned(lines, left=["system"])


def _of_seeds(tokens: Sequence[float | None]) -> dict[str, float | None]:
    reached = [number for number in tokens if number is not None]
    if len(reached) < len(tokens):
        return dict.fromkeys(("tokens", "fewest", "most"))
    return {"tokens": fmean(reached), "fewest": min(reached), "most": max(reached)}
