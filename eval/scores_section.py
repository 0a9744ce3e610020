"""The report's scores: per-pair tables of all systems, their gains over the baselines and over one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.macro import resource_classes
from eval.paired_systems import PairedScores, joint_difference, pair_systems, shared_sentences
from eval.pairwise import (
    LEVEL,
    PairDifference,
    Tally,
    against_reference,
    pair_differences,
    reference_system,
    save_comparison,
    tally,
)
from eval.results import System
from eval.scores import BASELINE, METRIC_NAMES, METRICS, SYSTEM
from eval.significance import percentile_interval
from eval.system_scores import Score, SystemScores, mean_score, system_scores

Joint = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PairRow:
    """What systems share on a pair; spans where they do not. baselines: their different scores."""

    pair: str
    train_pairs: tuple[int, int]
    n_test: tuple[int, int]
    baselines: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """A resource class: `high`, `medium`, `low` or `all`. baseline: mean BLEU of the baselines, where all systems have
    the same."""

    resource: str
    pairs: tuple[str, ...]
    train_pairs: tuple[int, int]
    baseline: float | None


@dataclass(frozen=True, kw_only=True)
class SystemTable:
    """One system's numbers by pair: scores, gains over the baselines (gains) and over the reference (against).

    joint_gains, joint_against: these in every joint resample of all pairs' test sets.
    """

    scores: SystemScores
    gains: Mapping[str, PairDifference]
    against: Mapping[str, PairDifference]
    joint_gains: Mapping[str, Joint]
    joint_against: Mapping[str, Joint]
    tallies: Sequence[Tally]
    classes: Sequence[ClassRow]

    def mean(self, pairs: Sequence[str], metric: str, name: str = SYSTEM) -> Score | None:
        """Over the pairs; None unless all have one."""
        return mean_score([self.scores.score(pair, metric, name) for pair in pairs])

    def mean_gain(self, pairs: Sequence[str]) -> float | None:
        """Over the baselines, in BLEU."""
        return _mean({pair: row.delta for pair, row in self.gains.items()}, pairs)

    def mean_gain_interval(self, pairs: Sequence[str]) -> tuple[float, float] | None:
        """Bounds of its 95 % interval."""
        return _mean_interval(self.joint_gains, pairs)

    def mean_against(self, pairs: Sequence[str]) -> float | None:
        """Over the reference system, in BLEU."""
        return _mean({pair: row.delta for pair, row in self.against.items()}, pairs)

    def mean_against_interval(self, pairs: Sequence[str]) -> tuple[float, float] | None:
        """Bounds of its 95 % interval."""
        return _mean_interval(self.joint_against, pairs)


def scores_section(out: Path, systems: Sequence[System]) -> Mapping[str, Any]:
    """What scores_section.html.j2 shows of the systems; of several, comparison.csv is written into out as well.

    A single run without baselines needs its scores.csv; all others need their translations too, which are resampled
    again, for means over pairs and for comparisons. Raises ValueError naming what is missing.
    """
    if not systems:
        raise ValueError("systems=[] leaves nothing to report; name at least one finished run")
    reference = reference_system(systems) if len(systems) > 1 else None
    resampled = [system for system in systems if reference or len(system.runs) > 1 or system.runs[0].gains]
    pairs = _pairs_by_resource(systems)
    shared = shared_sentences(resampled, pairs)
    paired = {pair: pair_systems(resampled, pair, shared) for pair in pairs}
    tables, left_out = [], []
    for system in systems:
        table, reasons = _table(system, reference, pairs, paired)
        tables.append(table)
        left_out += [(system.label, reason, names) for reason, names in reasons.items()]
    if reference is not None:
        rows = [row for table in tables for row in (*table.gains.values(), *table.against.values())]
        save_comparison(out / "comparison.csv", rows)
    shown = [_pair_row(pair, tables) for pair in pairs]
    baselines = {row.pair: row.baselines[0] for row in shown if len(row.baselines) == 1}
    return {
        "names": METRIC_NAMES,
        "SYSTEM": SYSTEM,
        "BASELINE": BASELINE,
        "tables": tables,
        "reference": reference.label if reference else None,
        "left_out": left_out,
        "pairs": shown,
        "classes": _class_rows({row.pair: row.train_pairs[1] for row in shown}, baselines),
        "compared": any(table.gains for table in tables),
        "seeds": any(table.scores.num_seeds > 1 for table in tables),
        "others": [METRIC_NAMES[metric] for metric in METRICS if metric != "bleu" and _is_scored(metric, tables)],
        "falling": _is_scored("ter", tables),
        "too_few_resamples": _too_few_resamples(tables),
        "signatures": _signatures(systems),
    }


def _table(
    system: System,
    reference: System | None,
    pairs: Sequence[str],
    paired: Mapping[str, Mapping[str, PairedScores]],
) -> tuple[SystemTable, dict[str, list[str]]]:
    own = {pair: found[system.label] for pair, found in paired.items() if system.label in found}
    scores = system_scores(system, own)
    gains = pair_differences(system.label, BASELINE, scores.gains)
    against: list[PairDifference] = []
    joint_against: dict[str, Joint] = {}
    left_out: dict[str, list[str]] = {}
    if reference is not None and system is not reference:
        against, left_out = against_reference(system.label, reference.label, pairs, paired)
        for row in against:
            joint_against[row.pair] = joint_difference(own[row.pair].system, paired[row.pair][reference.label].system)
    table = SystemTable(
        scores=scores,
        gains={row.pair: row for row in gains},
        against={row.pair: row for row in against},
        joint_gains={pair: joint for pair, both in own.items() if (joint := both.joint_gain) is not None},
        joint_against=joint_against,
        tallies=[tally(rows) for rows in (gains, against) if rows],
        classes=_class_rows({name: pair.train_pairs for name, pair in scores.pairs.items()}),
    )
    return table, left_out


def _pairs_by_resource(systems: Sequence[System]) -> list[str]:
    """All pairs of any system, by decreasing training pairs of the system that has most, then by name."""
    train_pairs: dict[str, int] = {}
    for system in systems:
        for pair, count in system.runs[0].record.train_pairs.items():
            if pair in system.runs[0].record.pairs:
                train_pairs[pair] = max(count, train_pairs.get(pair, 0))
    return sorted(train_pairs, key=lambda pair: (-train_pairs[pair], pair))


def _pair_row(pair: str, tables: Sequence[SystemTable]) -> PairRow:
    found = [table.scores.pairs[pair] for table in tables if pair in table.scores.pairs]
    baselines = {round(row.scores[BASELINE, "bleu"].score, 4) for row in found if (BASELINE, "bleu") in row.scores}
    train_pairs, n_test = [row.train_pairs for row in found], [row.n_test for row in found]
    return PairRow(
        pair=pair,
        train_pairs=(min(train_pairs), max(train_pairs)),
        n_test=(min(n_test), max(n_test)),
        baselines=tuple(sorted(baselines)),
    )


def _class_rows(train_pairs: Mapping[str, int], baselines: Mapping[str, float] | None = None) -> list[ClassRow]:
    """Thirds of the pairs and all of them."""
    return [
        ClassRow(
            resource=resource,
            pairs=pairs,
            train_pairs=(min(train_pairs[pair] for pair in pairs), max(train_pairs[pair] for pair in pairs)),
            baseline=_mean(baselines or {}, pairs),
        )
        for resource, pairs in resource_classes(train_pairs).items()
    ]


def _mean(values: Mapping[str, float], pairs: Sequence[str]) -> float | None:
    """None unless every pair has a value."""
    found = [values[pair] for pair in pairs if pair in values]
    return sum(found) / len(found) if found and len(found) == len(pairs) else None


def _mean_interval(joint: Mapping[str, Joint], pairs: Sequence[str]) -> tuple[float, float] | None:
    """None unless every pair has joint resamples."""
    if not pairs or not set(pairs) <= set(joint):
        return None
    return percentile_interval(np.mean([joint[pair] for pair in pairs], axis=0))


def _is_scored(metric: str, tables: Sequence[SystemTable]) -> bool:
    return any(metric in table.scores.metrics for table in tables)


def _too_few_resamples(tables: Sequence[SystemTable]) -> int | None:
    """How many there are, where even the lowest p that they can show is above the level after the correction."""
    groups = [list(rows.values()) for table in tables for rows in (table.gains, table.against) if rows]
    found = [rows[0].n_resamples for rows in groups if len(rows) / (rows[0].n_resamples + 1) > LEVEL]
    return min(found, default=None)


def _signatures(systems: Sequence[System]) -> list[tuple[str, str, str]]:
    """Rows (metric, signature, what it holds for); the systems are named where it does not hold for the same pairs of
    all."""
    found: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for system in systems:
        for run in system.runs:
            for row in run.scores:
                found.setdefault((row.metric, row.signature), {}).setdefault(system.label, {})[row.pair] = None
    counts = {system.label: len(system.runs[0].record.pairs) for system in systems}
    rows = []
    for (metric, signature), places in sorted(found.items()):
        systems_of: dict[str, list[str]] = {}
        for label, pairs in places.items():
            systems_of.setdefault("all pairs" if len(pairs) == counts[label] else ", ".join(pairs), []).append(label)
        shared = len(systems_of) == 1 and len(places) == len(systems)
        names = [pairs if shared else f"{pairs} of {', '.join(labels)}" for pairs, labels in systems_of.items()]
        rows.append((METRIC_NAMES.get(metric, metric), signature, "; ".join(names)))
    return rows
