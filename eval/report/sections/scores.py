"""The section on scores: tables by pair, with gains over the baselines and over one of the systems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.records.ending import MARK, MEANING, USUAL_PATIENCE
from eval.records.results import System
from eval.records.scores import BASELINE, METRICS, SYSTEM, Change
from eval.report.sections.fault_tables import compare_faults
from eval.report.sections.signatures import signature_rows
from eval.score.macro import complete_mean, resource_classes
from eval.score.paired_systems import PairedScores, joint_differences, pair_by_metric
from eval.score.pairwise import (
    LEVEL,
    PairDifference,
    Tally,
    against_reference,
    pair_differences,
    reference_system,
    save_comparison,
    tally,
)
from eval.score.significance import percentile_interval
from eval.score.system_scores import Score, SystemScores, mean_score, system_scores
from eval.score.verdict import FEWEST_LINES, LOWEST_BLEU, no_verdict

Joint = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PairRow:
    """The values of a pair that systems share.

    train_pairs, n_test: lowest and highest count of all systems.
    baselines: the different scores of the baselines.
    baseline_unfinished: the budget of a baseline ended it while it was still improving.
    """

    pair: str
    train_pairs: tuple[int, int]
    n_test: tuple[int, int]
    baselines: tuple[float, ...]
    baseline_unfinished: bool


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """A resource class: `high`, `medium`, `low`, `untrained` or `all`.

    train_pairs: lowest and highest count of its pairs.
    baseline: mean BLEU of the baselines, None unless all systems have the same ones.
    """

    resource: str
    pairs: tuple[str, ...]
    train_pairs: tuple[int, int]
    baseline: float | None


@dataclass(frozen=True, kw_only=True)
class SystemTable:
    """The numbers of one system by pair.

    metric_gains: differences from the baselines by metric and pair.
    forgetting: comparisons of a single run with the model that its training started from, by metric and pair.
    against: differences from the reference system, in BLEU.
    metric_joint_gains, metric_joint_against: both differences in every joint resample of all pairs' test sets, by
        metric and pair. Metrics that were not resampled for this page have none.
    tallies: wins and losses against the baselines, and against the reference system.
    """

    scores: SystemScores
    metric_gains: Mapping[str, Mapping[str, PairDifference]]
    forgetting: Mapping[str, Mapping[str, Change]]
    against: Mapping[str, PairDifference]
    metric_joint_gains: Mapping[str, Mapping[str, Joint]]
    metric_joint_against: Mapping[str, Mapping[str, Joint]]
    tallies: Sequence[Tally]
    classes: Sequence[ClassRow]

    @property
    def gains(self) -> Mapping[str, PairDifference]:
        """Differences from the baselines in BLEU, by pair."""
        return self.metric_gains.get("bleu", {})

    @property
    def joint_gains(self) -> Mapping[str, Joint]:
        """Differences from the baselines in BLEU in every joint resample, by pair."""
        return self.metric_joint_gains.get("bleu", {})

    @property
    def joint_against(self) -> Mapping[str, Joint]:
        """Differences from the reference system in BLEU in every joint resample, by pair."""
        return self.metric_joint_against.get("bleu", {})

    def unfinished(self, pair: str, name: str = SYSTEM) -> bool:
        """Return True if its budget ended the pair's model, SYSTEM or BASELINE, while it was still improving."""
        return pair in self.scores.pairs and name in self.scores.pairs[pair].unfinished

    def mean(self, pairs: Sequence[str], metric: str, name: str = SYSTEM) -> Score | None:
        """Return the mean score over the pairs, or None if one has no score."""
        return mean_score([self.scores.score(pair, metric, name) for pair in pairs])

    def mean_gain(self, pairs: Sequence[str], metric: str = "bleu") -> float | None:
        """Return the mean gain over the baselines."""
        gains = self.metric_gains.get(metric, {})
        return complete_mean([gains[pair].delta if pair in gains else None for pair in pairs])

    def mean_gain_interval(self, pairs: Sequence[str], metric: str = "bleu") -> tuple[float, float] | None:
        """Return the 95 % interval of the mean gain over the baselines, None for a metric that was not resampled."""
        return _mean_interval(self.metric_joint_gains.get(metric, {}), pairs)

    def mean_against(self, pairs: Sequence[str]) -> float | None:
        """Return the mean gain over the reference system, in BLEU."""
        return complete_mean([self.against[pair].delta if pair in self.against else None for pair in pairs])

    def mean_against_interval(self, pairs: Sequence[str]) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean gain over the reference system."""
        return _mean_interval(self.joint_against, pairs)


def scores_section(out: Path, systems: Sequence[System]) -> Mapping[str, Any]:
    """Return the values of scores_section.html.j2, and write comparison.csv into `out` if there are several systems.

    A single run without baselines needs only its scores.csv. All others need their translations too, because means over
    pairs and comparisons resample them. Raises ValueError for a missing file.
    """
    if not systems:
        raise ValueError("systems=[] leaves nothing to report; name at least one finished run")
    reference = reference_system(systems) if len(systems) > 1 else None
    resampled = [system for system in systems if reference or len(system.runs) > 1 or system.runs[0].gains]
    pairs = _pairs_by_resource(systems)
    paired = pair_by_metric(resampled, pairs)
    tables, left_out = [], []
    for system in systems:
        table, reasons = _table(system, reference, pairs, paired)
        tables.append(table)
        left_out += [(system.label, reason, names) for reason, names in reasons.items()]
    if reference is not None:
        rows = [row for table in tables for row in (*table.gains.values(), *table.against.values())]
        save_comparison(out / "comparison.csv", rows)
    pair_rows = [_pair_row(pair, tables) for pair in pairs]
    baselines = {row.pair: row.baselines[0] for row in pair_rows if len(row.baselines) == 1}
    metrics = {
        name: metric for name, metric in METRICS.items() if any(name in table.scores.metrics for table in tables)
    }
    return {
        "metrics": METRICS,
        "MARK": MARK,
        "MEANING": MEANING,
        "USUAL_PATIENCE": USUAL_PATIENCE,
        "FEWEST_LINES": FEWEST_LINES,
        "LOWEST_BLEU": f"{LOWEST_BLEU:g}",
        "no_verdict": no_verdict,
        "BASELINE": BASELINE,
        "tables": tables,
        "reference": reference.label if reference else None,
        "left_out": left_out,
        "pairs": pair_rows,
        "classes": _class_rows({row.pair: row.train_pairs[1] for row in pair_rows}, baselines),
        "compared": any(table.gains for table in tables),
        "faults": compare_faults(systems),
        "forgetting": any(table.forgetting["bleu"] for table in tables),
        "ensembles": [(system.label, system.runs[0].record.ensemble) for system in systems],
        "seeds": any(table.scores.num_seeds > 1 for table in tables),
        "scored": [metric.title for metric in metrics.values()],
        "unjudged": _unjudged(tables),
        "unfinished": any(row.unfinished for table in tables for row in table.scores.pairs.values()),
        "falling": [metric.title for metric in metrics.values() if metric.falling],
        "too_few_resamples": _too_few_resamples(tables),
        "signatures": signature_rows(systems),
    }


def _table(
    system: System,
    reference: System | None,
    pairs: Sequence[str],
    paired: Mapping[str, Mapping[str, Mapping[str, PairedScores]]],
) -> tuple[SystemTable, dict[str, list[str]]]:
    """Return the numbers of a system, and the pairs that are not compared with the reference, by reason.

    paired: resampled scores of all systems by metric, pair and label.
    """
    own_scores = {
        metric: {pair: by_label[system.label] for pair, by_label in by_pair.items() if system.label in by_label}
        for metric, by_pair in paired.items()
    }
    resampled = {
        pair: {metric: by_pair[pair] for metric, by_pair in own_scores.items() if pair in by_pair} for pair in pairs
    }
    scores = system_scores(system, resampled)
    unjudged = {pair: row.no_verdict for pair, row in scores.pairs.items()}
    gains = {
        metric: pair_differences(system.label, BASELINE, scores.gains(metric), unjudged, metric)
        for metric in scores.metrics
    }
    against: list[PairDifference] = []
    joint_against: dict[str, dict[str, Joint]] = {}
    left_out: dict[str, list[str]] = {}
    if reference is not None and system is not reference:
        against, left_out = against_reference(system.label, reference.label, pairs, paired["bleu"])
        compared = [row.pair for row in against]
        joint_against = {
            metric: joint_differences(compared, paired[metric], system.label, reference.label) for metric in paired
        }
    table = SystemTable(
        scores=scores,
        forgetting=_forgetting(system),
        metric_gains={metric: {row.pair: row for row in rows} for metric, rows in gains.items()},
        against={row.pair: row for row in against},
        metric_joint_gains={
            metric: {pair: joint for pair, score in by_pair.items() if (joint := score.joint_gain) is not None}
            for metric, by_pair in own_scores.items()
        },
        metric_joint_against=joint_against,
        tallies=[tally(rows) for rows in (*gains.values(), against) if rows],
        classes=_class_rows({name: pair.train_pairs for name, pair in scores.pairs.items()}),
    )
    return table, left_out


def _forgetting(system: System) -> dict[str, dict[str, Change]]:
    rows = system.runs[0].forgetting if len(system.runs) == 1 else ()
    return {metric: {row.pair: row for row in rows if row.metric == metric} for metric in METRICS}


def _pairs_by_resource(systems: Sequence[System]) -> list[str]:
    """Return the pairs of all systems, in decreasing order of training data (of the system with most), then by name."""
    train_pairs: dict[str, int] = {}
    for system in systems:
        for pair, count in system.runs[0].record.train_pairs.items():
            if pair in system.runs[0].record.pairs:
                train_pairs[pair] = max(count, train_pairs.get(pair, 0))
    return sorted(train_pairs, key=lambda pair: (-train_pairs[pair], pair))


def _pair_row(pair: str, tables: Sequence[SystemTable]) -> PairRow:
    rows = [table.scores.pairs[pair] for table in tables if pair in table.scores.pairs]
    baselines = {round(row.scores[BASELINE, "bleu"].score, 4) for row in rows if (BASELINE, "bleu") in row.scores}
    train_pairs, n_test = [row.train_pairs for row in rows], [row.n_test for row in rows]
    return PairRow(
        pair=pair,
        train_pairs=(min(train_pairs), max(train_pairs)),
        n_test=(min(n_test), max(n_test)),
        baselines=tuple(sorted(baselines)),
        baseline_unfinished=any(BASELINE in row.unfinished for row in rows),
    )


def _class_rows(train_pairs: Mapping[str, int], baselines: Mapping[str, float] | None = None) -> list[ClassRow]:
    """Return rows for the thirds of the pairs, for those without training data, and for all pairs."""
    return [
        ClassRow(
            resource=resource,
            pairs=pairs,
            train_pairs=(min(train_pairs[pair] for pair in pairs), max(train_pairs[pair] for pair in pairs)),
            baseline=complete_mean([(baselines or {}).get(pair) for pair in pairs]),
        )
        for resource, pairs in resource_classes(train_pairs).items()
    ]


def _mean_interval(joint: Mapping[str, Joint], pairs: Sequence[str]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean over the pairs, or None if one has no joint resamples."""
    if not pairs or not set(pairs) <= set(joint):
        return None
    return percentile_interval(np.mean([joint[pair] for pair in pairs], axis=0))


def _unjudged(tables: Sequence[SystemTable]) -> list[tuple[str, list[str]]]:
    """Return the reasons for which pairs get no verdict, each with its pairs, and systems if there are several."""
    pairs_of: dict[str, dict[str, None]] = {}
    for table in tables:
        for row in (*table.gains.values(), *table.against.values()):
            if row.no_verdict:
                name = row.pair if len(tables) == 1 else f"{row.pair} ({row.system} over {row.against})"
                pairs_of.setdefault(row.no_verdict, {})[name] = None
    return [(reason, list(names)) for reason, names in pairs_of.items()]


def _too_few_resamples(tables: Sequence[SystemTable]) -> int | None:
    """Return the number of resamples if no corrected p-value can reach the level with so few, else None."""
    groups = [list(rows.values()) for table in tables for rows in (*table.metric_gains.values(), table.against) if rows]
    too_few = [rows[0].n_resamples for rows in groups if len(rows) / (rows[0].n_resamples + 1) > LEVEL]
    return min(too_few, default=None)
