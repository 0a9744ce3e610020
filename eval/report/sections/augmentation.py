"""The rows that augmentation changed in training, from the cost ledgers of the multilingual models."""

from collections.abc import Sequence
from dataclasses import dataclass

from eval.records.results import RunResults
from eval.records.run_record import Json
from eval.records.scores import SYSTEM


@dataclass(frozen=True, kw_only=True)
class AugmentedRows:
    """Rows that were drawn for one kind of change, and how many of them were changed and were too long for it."""

    run: str
    kind: str
    drawn: int
    changed: int
    too_long: int


def augmented_rows(runs: Sequence[RunResults]) -> list[AugmentedRows]:
    """Return the counts of each run and kind, none for runs that changed no row."""
    return [
        AugmentedRows(run=run.label, kind=kind, **{name: int(number) for name, number in outcomes.items()})
        for run in runs
        for ledger in run.record.systems.get(SYSTEM, ())
        for kind, outcomes in _counts(ledger).items()
    ]


def _counts(ledger: Json) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = ledger.get("augmented") or {}
    return counts
