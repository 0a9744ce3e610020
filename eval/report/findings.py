"""Sentences at the top of a page of several systems: what was found, with intervals, and what is left open."""

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from eval.number_format import signed
from eval.records.scores import BASELINE
from eval.report.comparison import Difference
from eval.report.sections.cost import CostRow, FlopsGroup
from eval.report.sections.scores import SystemTable
from eval.score.significance import percentile_interval

Intervals = Mapping[tuple[str, str], tuple[float, float]]


def mean_intervals(tables: Sequence[SystemTable], reference: str) -> Intervals:
    """Return 95 % intervals of differences in mean BLEU over all pairs, by (system, other system or BASELINE).

    Systems whose test sets are not those of the reference, and systems without baselines, have none. There are none
    where no pair gets a verdict.

    tables: systems of equal language pairs.
    reference: label of the system that `joint_against` compares with.
    """
    pairs = list(tables[0].scores.pairs)
    if len(without_verdict(tables)) == len(pairs):
        return {}
    means: dict[str, NDArray[np.float64]] = {}
    for table in tables:
        if table.scores.label == reference:
            means[reference] = np.zeros(1)
        elif set(pairs) <= set(table.joint_against):
            means[table.scores.label] = np.mean([table.joint_against[pair] for pair in pairs], axis=0)
    over_baselines = {(table.scores.label, BASELINE): table.mean_gain_interval(pairs) for table in tables}
    return {names: interval for names, interval in over_baselines.items() if interval is not None} | {
        (first, second): percentile_interval(means[first] - means[second]) for first, second in permutations(means, 2)
    }


def without_verdict(tables: Sequence[SystemTable]) -> dict[str, str]:
    """Return the reason for each pair that no system gets a verdict on (`eval.score.verdict`)."""
    reasons = {pair: [table.scores.pairs[pair].no_verdict for table in tables] for pair in tables[0].scores.pairs}
    return {pair: of_pair[0] for pair, of_pair in reasons.items() if all(of_pair)}


def headline_of(groups: Sequence[FlopsGroup], num_pairs: int, intervals: Intervals) -> str:
    """Return what was found: the best of several systems, and each against the dense system of equal FLOPs.

    Where no group has both, the best is compared with the second.

    intervals: those of `mean_intervals`, of the differences that have one.
    """
    rows = _rows(groups)
    best = _best(rows)
    gain = best[0].numbers["delta_bleu"]
    pairs = f"{num_pairs} language pairs" if num_pairs > 1 else "one language pair"
    names = _listed([row.id for row in best]) + (" have" if len(best) > 1 else " has")
    several = f"the highest mean BLEU of {len(rows)} systems over {pairs},"
    highest = several if len(rows) > 1 else f"over {pairs} a mean BLEU of"
    text = f"{names} {highest} {_bleu(best[0]):.1f}"
    if gain is None:
        text += ", without bilingual baselines to compare with."
    else:
        text += f", {_against(gain)} the bilingual baselines{_bracket(intervals.get((best[0].id, BASELINE)))}."
    compared = [
        f"{row.id} {signed(_bleu(row) - _bleu(group.dense))}{_bracket(intervals.get((row.id, group.dense.id)))}"
        for group in groups
        if group.dense
        for row in (system[0] for system in group.systems)
        if row.experts
    ]
    if compared:
        return f"{text} Against the dense model of equal FLOPs: {', '.join(compared)}."
    other_rows = sorted((row for row in rows if row not in best), key=_bleu, reverse=True)
    if not other_rows:
        return text
    difference = (
        f"{signed(_bleu(best[0]) - _bleu(other_rows[0]))}{_bracket(intervals.get((best[0].id, other_rows[0].id)))}"
    )
    return f"{text} {best[0].id} against {other_rows[0].id}: {difference}."


def left_open(
    groups: Sequence[FlopsGroup],
    intervals: Intervals,
    differences: Sequence[Difference],
    unjudged: Mapping[str, str],
) -> str:
    """Return what cannot be concluded: systems level with the best, single seeds, and causes that are not told apart.

    differences: aspects in which the runs must be equal and are not.
    unjudged: those of `without_verdict`.
    """
    rows = _rows(groups)
    best = _best(rows)[0]
    level = []
    for row in rows:
        low, high = intervals.get((best.id, row.id), (0.0, 0.0))
        if row.id != best.id and (best.id, row.id) in intervals and low <= 0 <= high:
            level.append(row.id)
    sentences = []
    if level:
        several = all(row.num_models > 1 for row in rows if row.id in (best.id, *level))
        source = "The test sets and seeds do" if several else "The test sets do"
        sentences.append(f"{source} not tell {best.id} apart from {_listed(level)}.")
    single = [row.id for row in rows if row.num_models == 1]
    if len(single) == len(rows):
        sentences.append("Each system has one seed: another one may change the order.")
    elif single:
        verb = "have" if len(single) > 1 else "has"
        sentences.append(f"{_listed(single)} {verb} one seed, so intervals leave out what another one would change.")
    for reason in dict.fromkeys(unjudged.values()):
        pairs = [pair for pair, of_pair in unjudged.items() if of_pair == reason]
        sentences.append(f"There is no verdict on {_listed(pairs)} ({reason}), which the means count too.")
    if differences:
        aspects = _listed([difference.aspect for difference in differences])
        sentences.append(f"The systems differ in {aspects} too, so a difference has more than one cause.")
    return " ".join(sentences)


def _rows(groups: Sequence[FlopsGroup]) -> list[CostRow]:
    return [rows[0] for group in groups for rows in group.systems]


def _best(rows: Sequence[CostRow]) -> list[CostRow]:
    """Return the systems whose mean BLEU, as it is printed, is the highest; the highest of all first."""
    ordered = sorted(rows, key=_bleu, reverse=True)
    return [row for row in ordered if f"{_bleu(row):.1f}" == f"{_bleu(ordered[0]):.1f}"]


def _bleu(row: CostRow) -> float:
    return row.numbers["bleu"] or 0.0


def _against(difference: float) -> str:
    amount = f"{abs(difference):.1f}"
    return "level with" if amount == "0.0" else f"{amount} {'above' if difference > 0 else 'below'}"


def _bracket(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{signed(interval[0])}, {signed(interval[1])}]"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
