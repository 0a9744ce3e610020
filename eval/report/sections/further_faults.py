"""The faults of translations of a further test set, by pair and system, with those of the references."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.records.faults import FAULTS, LANGUAGE, load_faults
from eval.records.results import RunResults
from eval.records.run_record import load_run
from eval.report.sections.fault_tables import ANY, PairFaults, Series, fault_tables, pairs_not_judged

Column = tuple[str, str]  # label of the run and system
SHOWN_FAULTS = {LANGUAGE: FAULTS[LANGUAGE], ANY: "any fault"}  # titles by name


@dataclass(frozen=True, kw_only=True)
class FurtherFaults:
    """The faults of several runs on one test set.

    columns: the run and system of each column that has counts.
    pairs: faults by pair, then by column. A system has only the pairs that it translates.
    not_judged: reasons why languages are not judged, with their pairs.
    uncounted: labels of runs whose translations were not counted.
    unrecorded: True if some translations do not record whether the limit of length ended them.
    """

    columns: Sequence[Column]
    pairs: Mapping[str, Mapping[Column, PairFaults]]
    not_judged: Sequence[tuple[str, Sequence[str]]]
    uncounted: Sequence[str]
    unrecorded: bool


def load_counted(label: str, directory: Path) -> RunResults:
    """Read the record and the counts of faults of a test set's directory, without its scores."""
    faults = tuple(load_faults(directory))
    return RunResults(label=label, directory=directory, record=load_run(directory), scores=(), gains=(), faults=faults)


def further_faults(results: Sequence[RunResults]) -> FurtherFaults:
    """Return the faults of some runs on one test set. results: read by `load_counted`, with the labels of the runs."""
    columns: list[Column] = []
    series: list[Series] = []
    for result in results:
        counted = {row.system for row in result.faults}
        for system in (system for system in result.record.systems if system in counted):
            columns.append((result.label, system))
            series.append((result.label, (result,), system))
    tables, unrecorded = fault_tables(series)
    pairs: dict[str, dict[Column, PairFaults]] = {}
    for pair in dict.fromkeys(pair for result in results for pair in result.record.pairs):
        by_column = {
            column: table.pairs[pair] for column, table in zip(columns, tables, strict=True) if pair in table.pairs
        }
        if by_column:
            pairs[pair] = by_column
    return FurtherFaults(
        columns=columns,
        pairs=pairs,
        not_judged=pairs_not_judged(results),
        uncounted=[result.label for result in results if not result.faults],
        unrecorded=bool(unrecorded),
    )
