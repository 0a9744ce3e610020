"""Target tokens that systems need to a training loss, as Table 2 of GShard (arXiv:2006.16668).

They are read off a fit of each run's curve (`bench.experiment.scaling`), as a single batch is far above or below it.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bench.experiment.contrasts import load_systems, shared_seeds
from bench.experiment.curves import training_curve
from bench.experiment.scaling import FIRST_PART, fit
from bench.output import Row, aligned
from eval.number_format import decimal, quantity
from eval.records.run_record import LossPoint

COLUMNS = ("system", "num_seeds", "loss", "tokens", "fewest", "most", "share_of_first")


def measure(directories: Sequence[Path], losses: Sequence[float]) -> list[dict[str, Any]]:
    """Return a row for each loss and system: the mean tokens of its seeds, the fewest and the most.

    `share_of_first` is the mean over that of the first system, both of the seeds that both have, since a seed draws the
    same batches for all systems. The numbers are None where a seed has not come so far.

    directories: of finished runs. Those that differ in the seed alone are one system.
    losses: mean cross-entropies of training, in nats a token.
    Raises ValueError as `load_results`, `training_curve` and `shared_seeds`.
    """
    systems = load_systems(directories)
    curves = {system.label: {run.seed: training_curve(run.directory) for run in system.runs} for system in systems}
    shared = {system.label: shared_seeds([system, systems[0]]) for system in systems}
    rows = []
    for loss in losses:
        needed = {label: {seed: tokens_to(curves[label][seed], loss) for seed in curves[label]} for label in curves}
        first = needed[systems[0].label]
        for label, by_seed in needed.items():
            means = [_of_seeds([tokens[seed] for seed in shared[label]])["tokens"] for tokens in (by_seed, first)]
            share = means[0] / means[1] if means[0] and means[1] else None
            about = {"system": label, "num_seeds": len(by_seed), "loss": loss}
            rows.append({**about, **_of_seeds([*by_seed.values()]), "share_of_first": share})
    return rows


def tokens_to(curve: Sequence[LossPoint], loss: float) -> float | None:
    """Return the target tokens at which a fit of the curve has this loss; None outside what was trained and fitted."""
    tokens_N = np.array([point.target_tokens for point in curve], float)
    loss_N = np.array([point.cross_entropy for point in curve])
    used_N = tokens_N >= FIRST_PART * tokens_N[-1]
    law = fit(tokens_N[used_N], loss_N[None, used_N])
    first, last = law.loss(tokens_N[used_N][[0, -1]])
    if not last <= loss <= first or first == last:
        return None
    return float(((loss - law.floor_R[0]) / law.scale_R[0]) ** (-1 / law.exponent_R[0]))


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
