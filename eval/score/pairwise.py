"""Comparison of systems with a reference system, pair by pair: comparison.csv, Holm's correction, wins and losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.records.results import System
from eval.records.scores import row_cells, verdict, write_csv
from eval.score.paired_systems import PairedScores
from eval.score.significance import compare
from eval.score.system_scores import Paired
from eval.score.verdict import no_verdict

COLUMNS = ("pair", "system", "against", "delta", "ci_low", "ci_high", "p", "p_holm")
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class PairDifference:
    """A score of a system minus that of another on one pair, with its 95 % interval.

    p_value: p-value of this pair alone.
    p_holm: p-value corrected for the number of pairs on which the two systems are compared.
    no_verdict: the reason why the pair gets no verdict, empty where it gets one.
    """

    pair: str
    system: str
    against: str
    delta: float
    ci_low: float
    ci_high: float
    p_value: float
    p_holm: float
    n_resamples: int
    metric: str = "bleu"
    no_verdict: str = ""

    @property
    def verdict(self) -> int | None:
        """Return +1 (better) or -1 (worse) if the 95 % interval excludes zero, else 0; None without a verdict."""
        return None if self.no_verdict else verdict(self.metric, self.ci_low, self.ci_high)

    @property
    def corrected_verdict(self) -> int | None:
        """Return the verdict if the corrected p-value is at most 5 % too, else 0; None without a verdict."""
        return None if self.no_verdict else (self.verdict or 0) * int(self.p_holm <= LEVEL)


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Numbers of pairs on which a system is better, level or worse: by the interval alone, and after the correction.

    unjudged: pairs without a verdict, which are in none of the other numbers.
    """

    system: str
    against: str
    metric: str
    num_pairs: int
    delta: float  # the mean over the pairs
    unjudged: int
    better: int
    level: int
    worse: int
    corrected_better: int
    corrected_level: int
    corrected_worse: int


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the p-values after Holm's step-down correction (1979).

    The kth smallest of n is multiplied by n - k + 1. It is at least the one before it, and at most 1.
    """
    ordered = sorted(p_values, key=lambda name: p_values[name])
    corrected: dict[str, float] = {}
    least = 0.0
    for place, name in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - place) * p_values[name]))
        corrected[name] = least
    return corrected


def pair_differences(
    system: str,
    against: str,
    comparisons: Mapping[str, Paired],
    unjudged: Mapping[str, str] | None = None,
    metric: str = "bleu",
) -> list[PairDifference]:
    """Return the rows of one system against another from their comparisons by pair. Holm's correction is over them.

    unjudged: reasons by pair why there is no verdict.
    """
    corrected = holm({pair: paired.p_value for pair, paired in comparisons.items()})
    return [
        PairDifference(
            pair=pair,
            system=system,
            against=against,
            delta=paired.delta,
            ci_low=paired.ci_low,
            ci_high=paired.ci_high,
            p_value=paired.p_value,
            p_holm=corrected[pair],
            n_resamples=paired.n_resamples,
            metric=metric,
            no_verdict=(unjudged or {}).get(pair, ""),
        )
        for pair, paired in comparisons.items()
    ]


def tally(rows: Sequence[PairDifference]) -> Tally:
    """Count the verdicts of one system against another. rows: at least one."""
    verdicts = [row.verdict for row in rows]
    corrected = [row.corrected_verdict for row in rows]
    return Tally(
        system=rows[0].system,
        against=rows[0].against,
        metric=rows[0].metric,
        num_pairs=len(rows),
        delta=sum(row.delta for row in rows) / len(rows),
        unjudged=verdicts.count(None),
        better=verdicts.count(1),
        level=verdicts.count(0),
        worse=verdicts.count(-1),
        corrected_better=corrected.count(1),
        corrected_level=corrected.count(0),
        corrected_worse=corrected.count(-1),
    )


def reference_system(systems: Sequence[System]) -> System:
    """Return the first dense system, or the first of all systems if none is dense."""
    return next((system for system in systems if not any(run.is_moe for run in system.runs)), systems[0])


def against_reference(
    system: str, reference: str, pairs: Sequence[str], paired: Mapping[str, Mapping[str, PairedScores]]
) -> tuple[list[PairDifference], dict[str, list[str]]]:
    """Compare a system with the reference on the pairs that both translate from the same test set.

    Returns the rows, and the pairs that are left out by reason.
    """
    comparisons: dict[str, Paired] = {}
    unjudged: dict[str, str] = {}
    left_out: dict[str, list[str]] = {}
    for pair in pairs:
        scores, reference_scores = paired[pair].get(system), paired[pair].get(reference)
        if scores is None or reference_scores is None:
            left_out.setdefault("not translated by both", []).append(pair)
        elif scores.test_set.references != reference_scores.test_set.references:
            left_out.setdefault("different test sets", []).append(pair)
        elif scores.test_set.sources != reference_scores.test_set.sources:
            left_out.setdefault("different sources of the same references", []).append(pair)
        else:
            comparisons[pair] = compare(scores.system, reference_scores.system)
            unjudged[pair] = no_verdict(scores.system.n, [scores.system.score, reference_scores.system.score])
    return pair_differences(system, reference, comparisons, unjudged), left_out


def save_comparison(path: Path, rows: Sequence[PairDifference]) -> None:
    """Write comparison.csv in the order given, with four decimals, and six for the p-values."""
    names = ("pair", "system", "against", "delta", "ci_low", "ci_high", "p_value", "p_holm")
    write_csv(path, COLUMNS, [row_cells(row, names) for row in rows])
