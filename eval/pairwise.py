"""Systems against a reference system, pair by pair: comparison.csv, Holm's correction, wins and losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.paired_systems import PairedScores
from eval.results import System
from eval.scores import write_csv
from eval.significance import compare
from eval.system_scores import Paired

COLUMNS = ("pair", "system", "against", "delta", "ci_low", "ci_high", "p", "p_holm")
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class PairDifference:
    """BLEU of a system minus that of another on one pair, with its 95 % interval.

    p_value: of the pair by itself; p_holm: corrected for the number of pairs that the two are compared on.
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

    @property
    def verdict(self) -> int:
        """+1 or -1 where the 95 % interval excludes zero, else 0."""
        return int(self.ci_low > 0) - int(self.ci_high < 0)

    @property
    def corrected_verdict(self) -> int:
        """The verdict where the corrected p-value is below 5 % too, else 0."""
        return self.verdict if self.p_holm <= LEVEL else 0


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Pairs on which a system is better, level or worse, each by the interval alone and after the correction."""

    system: str
    against: str
    num_pairs: int
    delta: float  # mean over the pairs
    better: int
    level: int
    worse: int
    corrected_better: int
    corrected_level: int
    corrected_worse: int


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down correction (1979): the kth smallest of n times n - k + 1, never falling, at most 1."""
    ordered = sorted(p_values, key=lambda name: p_values[name])
    corrected: dict[str, float] = {}
    least = 0.0
    for place, name in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - place) * p_values[name]))
        corrected[name] = least
    return corrected


def pair_differences(system: str, against: str, found: Mapping[str, Paired]) -> list[PairDifference]:
    """Of one system against one other, by pair; Holm's correction is over these pairs."""
    corrected = holm({pair: paired.p_value for pair, paired in found.items()})
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
        )
        for pair, paired in found.items()
    ]


def tally(rows: Sequence[PairDifference]) -> Tally:
    """Of the rows of one system against one other, at least one."""
    verdicts = [row.verdict for row in rows]
    corrected = [row.corrected_verdict for row in rows]
    return Tally(
        system=rows[0].system,
        against=rows[0].against,
        num_pairs=len(rows),
        delta=sum(row.delta for row in rows) / len(rows),
        better=verdicts.count(1),
        level=verdicts.count(0),
        worse=verdicts.count(-1),
        corrected_better=corrected.count(1),
        corrected_level=corrected.count(0),
        corrected_worse=corrected.count(-1),
    )


def reference_system(systems: Sequence[System]) -> System:
    """The first dense system, or the first of all."""
    return next((system for system in systems if not any(run.is_moe for run in system.runs)), systems[0])


def against_reference(
    system: str, reference: str, pairs: Sequence[str], paired: Mapping[str, Mapping[str, PairedScores]]
) -> tuple[list[PairDifference], dict[str, list[str]]]:
    """Differences on the pairs that both translate from one test set, and by reason the pairs that are left out."""
    found: dict[str, Paired] = {}
    left_out: dict[str, list[str]] = {}
    for pair in pairs:
        ours, theirs = paired[pair].get(system), paired[pair].get(reference)
        if ours is None or theirs is None:
            left_out.setdefault("not translated by both", []).append(pair)
        elif ours.test_set.references != theirs.test_set.references:
            left_out.setdefault("different test sets", []).append(pair)
        elif ours.test_set.sources != theirs.test_set.sources:
            left_out.setdefault("different sources of the same references", []).append(pair)
        else:
            found[pair] = compare(ours.system, theirs.system)
    return pair_differences(system, reference, found), left_out


def save_comparison(path: Path, rows: Sequence[PairDifference]) -> None:
    """Write comparison.csv in the order given; four decimals, six for the p-values."""
    cells = [
        [row.pair, row.system, row.against]
        + [f"{value:.4f}" for value in (row.delta, row.ci_low, row.ci_high)]
        + [f"{value:.6f}" for value in (row.p_value, row.p_holm)]
        for row in rows
    ]
    write_csv(path, COLUMNS, cells)
