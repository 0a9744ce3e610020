"""What the figures show of a system: its scores and gains by pair, of several seeds the mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.language import pair_labels
from eval.pairwise import PairDifference
from eval.plots import ScorePoint
from eval.results import RunResults
from eval.scores import BASELINE, SYSTEM
from eval.scores_section import Joint, SystemTable
from eval.system_scores import SystemScores
from eval.trendline import TrendPoint


@dataclass(frozen=True, kw_only=True)
class Points:
    """What the figures of scores show, by system. gains: over the baselines; against: over the system `reference`, none
    for itself. baseline: of the first system that has baselines."""

    gains: Mapping[str, Sequence[TrendPoint]]
    against: Mapping[str, Sequence[TrendPoint]]
    reference: str
    scores: Mapping[str, Sequence[ScorePoint]]
    baseline: Sequence[ScorePoint]

    @property
    def all_scores(self) -> dict[str, Sequence[ScorePoint]]:
        """Of the systems, and of the baselines if there are any."""
        return {**self.scores, **({BASELINE: self.baseline} if self.baseline else {})}


def points_of(tables: Sequence[SystemTable], reference: str | None, runs: Sequence[RunResults]) -> Points:
    """Of systems and the runs that they are made of; labels of pairs are the shortest that tell them apart."""
    languages = {pair: sides for run in runs for pair, sides in run.record.languages.items()}
    labels = pair_labels(list(languages), languages)
    baselines = (score_points(table.scores, labels, BASELINE) for table in tables)
    return Points(
        gains={
            table.scores.label: _trend_points(table.scores, table.gains, table.joint_gains, labels) for table in tables
        },
        against={
            table.scores.label: _trend_points(table.scores, table.against, table.joint_against, labels)
            for table in tables
        },
        reference=reference or "",
        scores={table.scores.label: score_points(table.scores, labels) for table in tables},
        baseline=next(filter(None, baselines), []),
    )


def _trend_points(
    system: SystemScores,
    differences: Mapping[str, PairDifference],
    joint: Mapping[str, Joint],
    labels: Mapping[str, str],
) -> list[TrendPoint]:
    return [
        TrendPoint(
            pair=pair,
            label=labels[pair],
            train_pairs=system.pairs[pair].train_pairs,
            delta=row.delta,
            ci_low=row.ci_low,
            ci_high=row.ci_high,
            joint=joint[pair],
        )
        for pair, row in differences.items()
    ]


def score_points(system: SystemScores, labels: Mapping[str, str], name: str = SYSTEM) -> list[ScorePoint]:
    """BLEU of the multilingual model, or of the baselines by their name, of every pair that has it."""
    points = []
    for pair, row in system.pairs.items():
        score = system.score(pair, "bleu", name)
        if score is not None:
            low, high = score.interval or (score.score, score.score)
            points.append(
                ScorePoint(label=labels[pair], train_pairs=row.train_pairs, score=score.score, ci_low=low, ci_high=high)
            )
    return points
