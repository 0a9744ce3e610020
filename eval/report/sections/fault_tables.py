"""The tables of faults: the shares of faulty translations by system and pair, with those of the references."""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from eval.records.faults import FAULTS, LANGUAGE, REFERENCE, TRUNCATED, FaultRow, load_faulty_lines
from eval.records.results import RunResults, System
from eval.records.scores import BASELINE, SYSTEM
from eval.score.faults import surely_more

ANY = "faulty"
COLUMNS = (ANY, *FAULTS)
_NOTABLE = 0.01  # a share must be so much above that of the references to be bold, and worth a figure

Shares = Mapping[str, float | None]
LineNumbers = defaultdict[tuple[str, str, str], set[int]]  # of faulty lines, by pair, system and fault or ANY
Series = tuple[str, Sequence[RunResults], str]  # label of a table, the runs that are counted together, and their system


@dataclass(frozen=True, kw_only=True)
class PairFaults:
    """The faults of a system on one pair.

    shares: share of the translations with each fault, and with ANY; of the judged ones for LANGUAGE. None if unknown.
    floors: the same of the references.
    notable: faults, and ANY, whose share is a point or more above that of the references, and surely above it.
    length_ratio: characters of the translations for one of the references.
    """

    pair: str
    train_pairs: int
    n_test: int
    shares: Shares
    floors: Shares
    notable: frozenset[str]
    length_ratio: float


@dataclass(frozen=True, kw_only=True)
class FaultTable:
    """The faults of a system by pair, in decreasing order of training data.

    mean, floor_mean: mean shares of the translations and of the references, each pair counting the same.
    """

    label: str
    pairs: Mapping[str, PairFaults]
    mean: Shares
    floor_mean: Shares

    def faulty(self, pair: str) -> float | None:
        """Return the share of a pair's translations with any fault."""
        return self.pairs[pair].shares[ANY]

    def mean_faulty(self, pairs: Sequence[str]) -> float | None:
        """Return the mean over some pairs of the share with any fault."""
        return _mean([self.pairs[pair].shares for pair in pairs])[ANY]

    @property
    def length_ratio(self) -> float:
        """The mean over the pairs."""
        return sum(row.length_ratio for row in self.pairs.values()) / len(self.pairs)


@dataclass(frozen=True, kw_only=True)
class ComparedFaults:
    """The faults of all systems of a report.

    systems: runs of each system that have counts of faults; systems without such a run are left out.
    tables: the faults of each system by its label.
    baseline: the faults of the baselines of the first run that has some.
    uncounted: labels of runs that have no counts.
    unrecorded: labels of tables whose translations do not record whether the limit of length ended them. ANY is then
        without TRUNCATED in all tables, so that they compare.
    """

    systems: Sequence[System]
    tables: Mapping[str, FaultTable]
    baseline: FaultTable | None
    uncounted: Sequence[str]
    unrecorded: Sequence[str]

    @property
    def all_tables(self) -> tuple[FaultTable, ...]:
        """The tables of the systems, and that of the baselines."""
        return (*self.tables.values(), *filter(None, [self.baseline]))


def compare_faults(systems: Sequence[System]) -> ComparedFaults:
    """Return the faults of systems and of their baselines. The seeds of a system are counted together."""
    runs = [run for system in systems for run in system.runs]
    counted_systems = [
        replace(system, runs=with_counts)
        for system in systems
        if (with_counts := tuple(run for run in system.runs if run.faults))
    ]
    series: list[Series] = [(system.label, system.runs, SYSTEM) for system in counted_systems]
    with_baselines = next((run for run in runs if any(row.system == BASELINE for row in run.faults)), None)
    if with_baselines is not None:
        series.append((BASELINE, (with_baselines,), BASELINE))
    tables, unrecorded = fault_tables(series)
    return ComparedFaults(
        systems=counted_systems,
        tables={table.label: table for table in tables[: len(counted_systems)]},
        baseline=tables[-1] if with_baselines is not None else None,
        uncounted=[run.label for run in runs if not run.faults],
        unrecorded=unrecorded,
    )


def fault_tables(series: Sequence[Series]) -> tuple[list[FaultTable], list[str]]:
    """Return the table of each series, and the labels of those that do not record the limit of length.

    ANY is then without TRUNCATED in all tables, so that they compare.
    """
    unrecorded = [label for label, runs, name in series if not _recorded(runs, name)]
    in_any = frozenset(fault for fault in FAULTS if fault != TRUNCATED or not unrecorded)
    return [_table(label, runs, name, in_any) for label, runs, name in series], unrecorded


def pairs_not_judged(runs: Sequence[RunResults]) -> list[tuple[str, list[str]]]:
    """Return each reason why languages are not judged, with the pairs that it holds for."""
    pairs: dict[str, dict[str, None]] = {}
    for row in (row for run in runs for row in run.faults if row.not_judged):
        pairs.setdefault(row.not_judged, {})[row.pair] = None
    return [(reason, list(of_reason)) for reason, of_reason in pairs.items()]


def _recorded(runs: Sequence[RunResults], name: str) -> bool:
    """Tell if all translations of a system of some runs record whether the limit of length ended them."""
    return all(row.truncated is not None for run in runs for row in run.faults if row.system == name)


def _table(label: str, runs: Sequence[RunResults], name: str, in_any: Set[str]) -> FaultTable:
    """Return the table of a system of some runs. in_any: the faults that ANY counts."""
    record = runs[0].record
    numbers = [_line_numbers(run, in_any) for run in runs]
    pairs = {}
    for pair in record.pairs_by_resource:
        own, floor = (
            [row for run in runs for row in run.faults if row.pair == pair and row.system == system]
            for system in (name, REFERENCE)
        )
        if own:
            shares, floors = _shares(own, numbers), _shares(floor, numbers)
            pairs[pair] = PairFaults(
                pair=pair,
                train_pairs=record.train_pairs[pair],
                n_test=own[0].n_test,
                shares=shares,
                floors=floors,
                notable=frozenset(
                    fault
                    for fault in COLUMNS
                    if _far_above(shares[fault], floors[fault])
                    and all(
                        surely_more(of_run[pair, name, fault], of_run[pair, REFERENCE, fault]) for of_run in numbers
                    )
                ),
                length_ratio=sum(row.length_ratio for row in own) / len(own),
            )
    return FaultTable(
        label=label,
        pairs=pairs,
        mean=_mean([row.shares for row in pairs.values()]),
        floor_mean=_mean([row.floors for row in pairs.values()]),
    )


def _line_numbers(run: RunResults, in_any: Set[str]) -> LineNumbers:
    """Return the numbers of the faulty lines of a run."""
    numbers: LineNumbers = defaultdict(set)
    for line in load_faulty_lines(run.directory):
        numbers[line.pair, line.system, line.fault].add(line.line)
        if line.fault in in_any:
            numbers[line.pair, line.system, ANY].add(line.line)
    return numbers


def _shares(rows: Sequence[FaultRow], numbers: Sequence[LineNumbers]) -> Shares:
    """Return the shares of ANY and of each fault over the rows of all seeds, which are of one pair and system."""
    lines, judged = sum(row.n_test for row in rows), sum(row.judged for row in rows)
    is_judged = judged > 0 and not any(row.not_judged for row in rows)
    (place,) = {(row.pair, row.system) for row in rows}
    shares: dict[str, float | None] = {ANY: sum(len(of_run[*place, ANY]) for of_run in numbers) / lines}
    for fault in FAULTS:
        counts = [getattr(row, fault) for row in rows]
        shares[fault] = None if None in counts else sum(counts) / lines
    shares[LANGUAGE] = sum(row.wrong_language for row in rows) / judged if is_judged else None
    return shares


def _far_above(share: float | None, floor: float | None) -> bool:
    return share is not None and floor is not None and round(share - floor, 9) >= _NOTABLE


def _mean(shares_of_pairs: Sequence[Shares]) -> Shares:
    """Return the mean of each share over the pairs where it is known."""
    means: dict[str, float | None] = {}
    for fault in COLUMNS:
        values = [share for shares in shares_of_pairs if (share := shares[fault]) is not None]
        means[fault] = sum(values) / len(values) if values else None
    return means
