"""The points of the figures of scores: scores and gains of systems by pair, each the mean of a system's seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.language import pair_labels
from eval.records.ending import MARK
from eval.records.results import RunResults
from eval.records.scores import BASELINE, SYSTEM
from eval.report.plots.scores import ScorePoint
from eval.report.plots.trendline import TrendPoint
from eval.report.sections.scores import Joint, SystemTable
from eval.score.pairwise import PairDifference
from eval.score.system_scores import SystemScores


@dataclass(frozen=True, kw_only=True)
class Points:
    """The points of the figures, by system.

    gains: gains over the baselines.
    against: gains over the system `reference`, which has none itself.
    baseline: scores of the baselines of the first system that has some.
    """

    gains: Mapping[str, Sequence[TrendPoint]]
    against: Mapping[str, Sequence[TrendPoint]]
    reference: str
    scores: Mapping[str, Sequence[ScorePoint]]
    baseline: Sequence[ScorePoint]

    @property
    def all_scores(self) -> dict[str, Sequence[ScorePoint]]:
        """Scores of the systems, and of the baselines if a system has some."""
        return {**self.scores, **({BASELINE: self.baseline} if self.baseline else {})}


def points_of(tables: Sequence[SystemTable], reference: str | None, runs: Sequence[RunResults]) -> Points:
    """Return the points of systems.

    tables: the numbers of each system.
    reference: label of the reference system.
    runs: all runs, whose languages decide the shortest labels that tell pairs apart.
    """
    languages = {pair: sides for run in runs for pair, sides in run.record.languages.items()}
    labels = pair_labels(list(languages), languages)
    baselines = (score_points(table.scores, labels, BASELINE) for table in tables)
    return Points(
        gains={
            _name(table): _trend_points(table.scores, table.gains, table.joint_gains, labels, baselines=True)
            for table in tables
        },
        against={
            _name(table): _trend_points(table.scores, table.against, table.joint_against, labels, baselines=False)
            for table in tables
        },
        reference=reference or "",
        scores={_name(table): score_points(table.scores, labels) for table in tables},
        baseline=next(filter(None, baselines), []),
    )


def _name(table: SystemTable) -> str:
    """Return the label of a system, with a mark if its budget ended it while it was still improving."""
    cut_off = any(SYSTEM in row.unfinished for row in table.scores.pairs.values())
    return f"{table.scores.label} {MARK}" if cut_off else table.scores.label


def _trend_points(
    system: SystemScores,
    differences: Mapping[str, PairDifference],
    joint: Mapping[str, Joint],
    labels: Mapping[str, str],
    *,
    baselines: bool,
) -> list[TrendPoint]:
    """Return the points of one system. baselines: the differences are from the bilingual baselines."""
    return [
        TrendPoint(
            pair=pair,
            label=labels[pair],
            train_pairs=system.pairs[pair].train_pairs,
            delta=row.delta,
            ci_low=row.ci_low,
            ci_high=row.ci_high,
            joint=joint[pair],
            baseline_unfinished=baselines and BASELINE in system.pairs[pair].unfinished,
        )
        for pair, row in differences.items()
    ]


def score_points(system: SystemScores, labels: Mapping[str, str], name: str = SYSTEM) -> list[ScorePoint]:
    """Return BLEU of the multilingual model for every pair that has it, or of the baselines if `name` is theirs."""
    points = []
    for pair, row in system.pairs.items():
        score = system.score(pair, "bleu", name)
        if score is not None:
            low, high = score.interval or (score.score, score.score)
            points.append(
                ScorePoint(
                    label=labels[pair],
                    train_pairs=row.train_pairs,
                    score=score.score,
                    ci_low=low,
                    ci_high=high,
                    unfinished=name in row.unfinished,
                )
            )
    return points
