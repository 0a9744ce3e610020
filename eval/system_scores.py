"""Scores of systems by pair: a run's own, or the mean over runs that differ in their seed alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eval.paired_systems import PairedScores
from eval.results import RunResults, System
from eval.scores import BASELINE, METRICS, SYSTEM, ScoreRow


@dataclass(frozen=True, kw_only=True)
class Score:
    """0 to 100. interval: 95 %, where it is known. seeds: what the score is the mean of."""

    score: float
    interval: tuple[float, float] | None = None
    seeds: tuple[float, ...] = ()

    @property
    def spread(self) -> float | None:
        """Half the distance between the lowest and the highest seed; None for one, or for one counted twice, as
        baselines that seeds share."""
        return (max(self.seeds) - min(self.seeds)) / 2 if len(set(self.seeds)) > 1 else None


class Paired(Protocol):
    """What SignificanceRow and Comparison have in common: one score minus another on the same sentences."""

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
    """A system on one pair. scores: by (SYSTEM or BASELINE, metric). gain: in BLEU over its baselines."""

    pair: str
    train_pairs: int
    n_test: int
    scores: Mapping[tuple[str, str], Score]
    gain: Paired | None


@dataclass(frozen=True, kw_only=True)
class SystemScores:
    """A system's pairs by decreasing resource."""

    label: str
    num_seeds: int
    pairs: Mapping[str, PairScores]

    @property
    def gains(self) -> dict[str, Paired]:
        """Of the pairs that have a baseline."""
        return {name: pair.gain for name, pair in self.pairs.items() if pair.gain is not None}

    @property
    def metrics(self) -> list[str]:
        """What at least one pair was scored by, BLEU first."""
        found = {metric for pair in self.pairs.values() for _, metric in pair.scores}
        return [metric for metric in METRICS if metric in found]

    def score(self, pair: str, metric: str, name: str = SYSTEM) -> Score | None:
        """None where there is none."""
        return self.pairs[pair].scores.get((name, metric)) if pair in self.pairs else None


def system_scores(system: System, paired: Mapping[str, PairedScores]) -> SystemScores:
    """Scores of a system. paired: of each pair, needed with several seeds alone.

    Raises ValueError for a pair without a BLEU score, and for seeds that were scored on different pairs.
    """
    first = system.runs[0]
    for run in system.runs[1:]:
        if set(run.record.pairs) != set(first.record.pairs):
            raise ValueError(
                f"{first.label} and {run.label} differ in their seed alone, yet translate different pairs "
                f"({', '.join(sorted(set(first.record.pairs) ^ set(run.record.pairs)))}); compare finished runs"
            )
    pairs = {pair: _pair_scores(system, pair, paired.get(pair)) for pair in first.record.pairs_by_resource}
    return SystemScores(label=system.label, num_seeds=len(system.runs), pairs=pairs)


def mean_score(scores: Sequence[Score | None]) -> Score | None:
    """Macro mean, also of each seed; None unless every score is there."""
    known = [score for score in scores if score is not None]
    if not known or len(known) < len(scores):
        return None
    seeds = [score.seeds for score in known]
    return Score(
        score=sum(score.score for score in known) / len(known),
        seeds=tuple(sum(values) / len(values) for values in zip(*seeds, strict=True)),
    )


def _pair_scores(system: System, pair: str, paired: PairedScores | None) -> PairScores:
    rows = [_rows(run, pair) for run in system.runs]
    shared = set(rows[0]).intersection(*rows[1:])
    scores = {key: _mean([row[key] for row in rows]) for key in rows[0] if key in shared}
    gains = [gain for gain in system.runs[0].gains if (gain.pair, gain.metric) == (pair, "bleu")]
    gain: Paired | None = gains[0] if gains else None
    if len(system.runs) > 1 and paired is not None:
        for name, resampled in ((SYSTEM, paired.system), (BASELINE, paired.baseline)):
            if resampled is not None:
                interval = (resampled.ci_low, resampled.ci_high)
                found = scores[name, "bleu"]
                scores[name, "bleu"] = Score(score=found.score, interval=interval, seeds=found.seeds)
        gain = paired.gain
    return PairScores(
        pair=pair,
        train_pairs=system.runs[0].record.train_pairs[pair],
        n_test=rows[0][SYSTEM, "bleu"].n_test,
        scores=scores,
        gain=gain,
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
