"""Bootstrap intervals and the paired bootstrap between two systems (Koehn 2004), on sacreBLEU's statistics.

sacreBLEU's own `PairedTest` gives a p-value, but no bounds of intervals and no interval of the difference. It also
extracts the statistics again for every comparison. This module extracts them once. It draws the same resamples as
sacreBLEU from the same seed, so scores, half-widths and p-values are equal to sacreBLEU's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eval.score.metrics import check_parallel, score_from_sums, scorer_for, sentence_statistics
from eval.score.shared_sentences import joint_sums

NUM_RESAMPLES = 1000
SEED = 12345  # sacreBLEU's default; stated in every signature with an interval
_MAX_COUNTS = 8_000_000  # cells of the resampling matrix that are in memory together: 64 MB


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """A corpus score with its 95 % interval.

    n: sentences of the test set.
    resampled: the score in every bootstrap resample.
    joint: the score in NUM_RESAMPLES resamples that other pairs' test sets share; None if not asked for.
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
    """System minus baseline on the same sentences: the difference, its 95 % interval, and its p-value."""

    delta: float
    ci_low: float
    ci_high: float
    p_value: float
    n_resamples: int
    seed: int


def percentile_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bounds of the central 95 %. One value in forty is left out at either end, as in sacreBLEU."""
    ordered = np.sort(values)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[len(ordered) - cut - 1])


def resampled_sums(stats: NDArray[np.float64], n_resamples: int, seed: int) -> NDArray[np.float64]:
    """Return the column sums of the statistics in each resample, [n_resamples, columns].

    Sums of whole numbers are exact.
    """
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
    """Score systems on one test set and on its bootstrap resamples. The signature has bs and seed, as sacreBLEU's.

    systems: the translated lines of each system.
    tgt: code of the target language.
    sentences: the number of each row, from `SharedSentences.numbers`, for joint resamples with other pairs.
    Raises ValueError for lengths that differ, an empty set, or an unknown metric.
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
    score_of = partial(score_from_sums, scorer)
    return _resample(statistics, score_of, str(signature), n_resamples=n_resamples, seed=seed, sentences=sentences)


def resample_means(
    scores: Sequence[Sequence[float]], signature: str, *, n_resamples: int = NUM_RESAMPLES, seed: int = SEED
) -> list[Resampled]:
    """Return the mean scores of systems on one test set and on its bootstrap resamples, those of `resample`.

    scores: of every sentence, by system.
    signature: how they were computed.
    """
    statistics = [np.stack((np.array(of_system), np.ones(len(of_system))), axis=1) for of_system in scores]
    signature = f"{signature}|bs:{n_resamples}|seed:{seed}"
    return _resample(statistics, lambda sums: float(sums[0] / sums[1]), signature, n_resamples=n_resamples, seed=seed)


def _resample(
    statistics: Sequence[NDArray[np.float64]],
    score_of: Callable[[NDArray[np.float64]], float],
    signature: str,
    *,
    n_resamples: int,
    seed: int,
    sentences: Sequence[int] = (),
) -> list[Resampled]:
    """Score systems by the sums of their statistics over the sentences. statistics: rows of sentences, by system."""
    columns = np.hstack(statistics)
    sums = resampled_sums(columns, n_resamples, seed)  # one draw of the indices for all systems
    joint = joint_sums(columns, sentences, NUM_RESAMPLES, SEED) if sentences else np.empty((0, columns.shape[1]))
    results = []
    for place, stats in enumerate(statistics):
        resampled, jointly = (
            np.array([score_of(row) for row in np.hsplit(rows, len(statistics))[place]]) for rows in (sums, joint)
        )
        low, high = percentile_interval(resampled)
        results.append(
            Resampled(
                score=score_of(stats.sum(axis=0)),
                ci_low=low,
                ci_high=high,
                signature=signature,
                n=len(stats),
                seed=seed,
                resampled=resampled,
                joint=jointly if sentences else None,
            )
        )
    return results


def compare(system: Resampled, baseline: Resampled) -> Comparison:
    """Compare two systems that were scored on the same sentences with the same resamples (paired bootstrap).

    p_value follows the definition of sacreBLEU (and Moses), which acts one-sided. Systems that never differ get 1.0.
    The interval of the difference is two-sided. To exclude 0 is a stricter criterion than the p-value.
    Raises ValueError if the two have different signatures or numbers of sentences.
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
