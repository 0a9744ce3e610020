"""Scores of systems by pair: the scores of one run, or means over runs that differ in their seed alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from eval.records.ending import unfinished_systems
from eval.records.results import RunResults, System
from eval.records.scores import BASELINE, METRICS, SYSTEM, ScoreRow
from eval.score.paired_systems import PairedScores
from eval.score.verdict import no_verdict


@dataclass(frozen=True, kw_only=True)
class Score:
    """A score from 0 to 100.

    interval: bounds of its 95 % interval, None if not known.
    seeds: the scores of the seeds, if it is their mean.
    """

    score: float
    interval: tuple[float, float] | None = None
    seeds: tuple[float, ...] = ()

    @property
    def spread(self) -> float | None:
        """Return half the distance between the lowest and the highest seed.

        It is None for one seed, and for equal scores, as of baselines that the seeds share.
        """
        return (max(self.seeds) - min(self.seeds)) / 2 if len(set(self.seeds)) > 1 else None


class Paired(Protocol):
    """A difference of two scores on the same sentences: the fields that SignificanceRow and Comparison share."""

    @property
    def delta(self) -> float: ...
    @property
    def ci_low(self) -> float: ...
    @property
    def ci_high(self) -> float: ...
    @property
    def p_value(self) -> float: ...
    @property
    def n_resamples(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class PairScores:
    """Scores of a system on one pair.

    scores: scores by (SYSTEM or BASELINE, metric).
    gains: differences from the baselines by metric, empty without baselines.
    unfinished: which of SYSTEM and BASELINE their budget ended while they were still improving, in any seed.
    """

    pair: str
    train_pairs: int
    n_test: int
    scores: Mapping[tuple[str, str], Score]
    gains: Mapping[str, Paired]
    unfinished: frozenset[str]

    @property
    def no_verdict(self) -> str:
        """The reason why system and baselines get no verdict, empty where they get one."""
        return no_verdict(self.n_test, [score.score for (_, metric), score in self.scores.items() if metric == "bleu"])


@dataclass(frozen=True, kw_only=True)
class SystemScores:
    """Scores of a system, its pairs in decreasing order of training data."""

    label: str
    num_seeds: int
    pairs: Mapping[str, PairScores]

    def gains(self, metric: str) -> dict[str, Paired]:
        """Return the gains by pair, of the pairs that have a baseline."""
        return {name: pair.gains[metric] for name, pair in self.pairs.items() if metric in pair.gains}

    @property
    def metrics(self) -> list[str]:
        """Metrics by which at least one pair was scored, BLEU first."""
        names = {metric for pair in self.pairs.values() for _, metric in pair.scores}
        return [metric for metric in METRICS if metric in names]

    def score(self, pair: str, metric: str, name: str = SYSTEM) -> Score | None:
        """Return a score, or None if the pair does not have it."""
        return self.pairs[pair].scores.get((name, metric)) if pair in self.pairs else None


def system_scores(system: System, paired: Mapping[str, Mapping[str, PairedScores]]) -> SystemScores:
    """Collect the scores of a system.

    paired: resampled scores by pair and metric; only a system of several seeds needs them.
    Raises ValueError for a pair without a BLEU score, and for seeds that were scored on different pairs.
    """
    first = system.runs[0]
    for run in system.runs[1:]:
        if set(run.record.pairs) != set(first.record.pairs):
            raise ValueError(
                f"{first.label} and {run.label} differ in their seed alone, yet translate different pairs "
                f"({', '.join(sorted(set(first.record.pairs) ^ set(run.record.pairs)))}); compare finished runs"
            )
    pairs = {pair: _pair_scores(system, pair, paired.get(pair, {})) for pair in first.record.pairs_by_resource}
    return SystemScores(label=system.label, num_seeds=len(system.runs), pairs=pairs)


def mean_score(scores: Sequence[Score | None]) -> Score | None:
    """Return the macro mean, with the mean of each seed; None if a score is missing."""
    present = [score for score in scores if score is not None]
    if not present or len(present) < len(scores):
        return None
    seeds = [score.seeds for score in present]
    return Score(
        score=sum(score.score for score in present) / len(present),
        seeds=tuple(sum(values) / len(values) for values in zip(*seeds, strict=True)),
    )


def _pair_scores(system: System, pair: str, paired: Mapping[str, PairedScores]) -> PairScores:
    rows = [_rows(run, pair) for run in system.runs]
    shared_keys = set(rows[0]).intersection(*rows[1:])
    scores = {key: _mean([row[key] for row in rows]) for key in rows[0] if key in shared_keys}
    gains: dict[str, Paired] = {gain.metric: gain for gain in system.runs[0].gains if gain.pair == pair}
    if len(system.runs) > 1:
        gains = {metric: of_metric.gain for metric, of_metric in paired.items() if of_metric.gain is not None}
        for metric, of_metric in paired.items():
            for name, resampled in ((SYSTEM, of_metric.system), (BASELINE, of_metric.baseline)):
                if resampled is not None and (name, metric) in scores:
                    interval = (resampled.ci_low, resampled.ci_high)
                    scores[name, metric] = replace(scores[name, metric], interval=interval)
    return PairScores(
        pair=pair,
        train_pairs=system.runs[0].record.train_pairs[pair],
        n_test=rows[0][SYSTEM, "bleu"].n_test,
        scores=scores,
        gains=gains,
        unfinished=frozenset().union(*(unfinished_systems(run.record.systems, pair) for run in system.runs)),
    )


def _rows(run: RunResults, pair: str) -> dict[tuple[str, str], ScoreRow]:
    rows = {(row.system, row.metric): row for row in run.scores if row.pair == pair}
    if (SYSTEM, "bleu") not in rows:
        raise ValueError(
            f"{run.directory / 'scores.csv'} has no bleu of {SYSTEM!r} for pair={pair!r}; score the run again"
        )
    return rows


def _mean(rows: Sequence[ScoreRow]) -> Score:
    if len(rows) == 1:
        return Score(score=rows[0].score, interval=(rows[0].ci_low, rows[0].ci_high))
    seeds = tuple(row.score for row in rows)
    return Score(score=sum(seeds) / len(seeds), seeds=seeds)
