"""Bootstrap intervals and the paired bootstrap between two systems (Koehn 2004), on sacreBLEU's statistics.

sacreBLEU's own `PairedTest` gives a p-value but neither the bounds of an interval nor an interval of the
difference, and extracts statistics again for every comparison. Here they are extracted once and resampled
with the indices that sacreBLEU draws from the same seed, so its scores, half-widths and p-values are met.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.metrics import check_parallel, score_from_sums, scorer_for, sentence_statistics
from eval.shared_sentences import joint_sums

NUM_RESAMPLES = 1000
SEED = 12345  # sacreBLEU's default; stated in every signature with an interval
_MAX_COUNTS = 8_000_000  # cells of the resampling matrix held at once: 64 MB


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """A corpus score with its 95 % interval and its score in every bootstrap resample.

    joint: its score in NUM_RESAMPLES resamples that other pairs' test sets share, where it was asked for.
    """

    score: float
    ci_low: float
    ci_high: float
    signature: str
    n: int
    seed: int
    resampled: NDArray[np.float64]
    joint: NDArray[np.float64] | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """System minus baseline on the same sentences: difference, its 95 % interval, and p-value."""

    delta: float
    ci_low: float
    ci_high: float
    p_value: float
    n_resamples: int
    seed: int


def percentile_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Bounds of the central 95 %: one value in forty is left out at either end, as sacreBLEU does."""
    ordered = np.sort(values)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[len(ordered) - cut - 1])


def resampled_sums(stats: NDArray[np.float64], n_resamples: int, seed: int) -> NDArray[np.float64]:
    """Column sums of the statistics in each resample, (n_resamples, columns); exact whole numbers."""
    n = len(stats)
    indices = np.random.default_rng(seed).choice(n, size=(n_resamples, n), replace=True)
    chunk = max(1, _MAX_COUNTS // n)
    sums = []
    for start in range(0, n_resamples, chunk):
        part = indices[start : start + chunk]
        cells = part + np.arange(len(part))[:, None] * n
        counts = np.bincount(cells.ravel(), minlength=len(part) * n).reshape(len(part), n)
        sums.append(counts.astype(np.float64) @ stats)
    return np.concatenate(sums)


def resample(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    tgt: str,
    metric: str,
    *,
    n_resamples: int = NUM_RESAMPLES,
    seed: int = SEED,
    sentences: Sequence[int] = (),
) -> list[Resampled]:
    """Score systems on one test set, and its bootstrap resamples; the signature carries bs and seed, as sacreBLEU's.

    systems: the lines of each. sentences: numbers of the rows, for joint resamples with other pairs. Raises ValueError
    for lengths that differ, an empty set, or an unknown metric.
    """
    if n_resamples < 1:
        raise ValueError(f"n_resamples={n_resamples} leaves nothing to resample; use {NUM_RESAMPLES}")
    for hypotheses in systems:
        check_parallel(hypotheses, references)
    scorer = scorer_for(metric, tgt, references=[references])
    signature = scorer.get_signature()
    signature.update("bs", n_resamples)
    signature.update("seed", seed)
    statistics = [sentence_statistics(scorer, hypotheses) for hypotheses in systems]
    columns = np.hstack(statistics)
    sums = resampled_sums(columns, n_resamples, seed)  # one draw of the indices for all systems
    joint = joint_sums(columns, sentences, NUM_RESAMPLES, SEED) if sentences else np.empty((0, columns.shape[1]))
    found = []
    for place, stats in enumerate(statistics):
        resampled, jointly = (
            np.array([score_from_sums(scorer, row) for row in np.hsplit(rows, len(statistics))[place]])
            for rows in (sums, joint)
        )
        low, high = percentile_interval(resampled)
        found.append(
            Resampled(
                score=score_from_sums(scorer, stats.sum(axis=0)),
                ci_low=low,
                ci_high=high,
                signature=str(signature),
                n=len(stats),
                seed=seed,
                resampled=resampled,
                joint=jointly if sentences else None,
            )
        )
    return found


def compare(system: Resampled, baseline: Resampled) -> Comparison:
    """Paired bootstrap of two systems scored on the same sentences with the same resamples.

    p_value is sacreBLEU's (Moses's) definition, which acts one-sided; systems that never differ get 1.0.
    The interval is of the difference itself, two-sided: whether it excludes 0 is the stricter criterion.
    """
    if system.signature != baseline.signature or system.n != baseline.n:
        raise ValueError(
            f"system ({system.signature}, n={system.n}) and baseline ({baseline.signature}, n={baseline.n}) "
            "are not paired; score both on the same sentences with the same metric, resamples and seed"
        )
    delta = system.score - baseline.score
    deltas = system.resampled - baseline.resampled
    low, high = percentile_interval(deltas)
    spread = np.abs(deltas)
    exceed = int(np.sum(spread - spread.mean() > abs(delta)))
    p_value = (exceed + 1) / (len(deltas) + 1) if deltas.any() else 1.0
    return Comparison(
        delta=delta,
        ci_low=low,
        ci_high=high,
        p_value=p_value,
        n_resamples=len(deltas),
        seed=system.seed,
    )
