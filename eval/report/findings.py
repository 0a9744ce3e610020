"""Sentences at the top of a page of several systems: what was found, with intervals, and what is left open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from eval.number_format import signed
from eval.records.scores import BASELINE, METRICS, SYSTEM, verdict
from eval.report.comparison import Difference
from eval.report.sections.cost import CostRow, FlopsGroup
from eval.report.sections.scores import SystemTable
from eval.report.summary import listed
from eval.score.significance import percentile_interval

Intervals = Mapping[tuple[str, str], tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class MetricMeans:
    """Means over all pairs by one metric.

    scores: mean scores by (system, SYSTEM or BASELINE), of the systems that have the metric for every pair.
    intervals: those of `mean_intervals`; none for a metric that a command computes.
    """

    metric: str
    scores: Mapping[tuple[str, str], float]
    intervals: Intervals

    def difference(self, system: str, other: str) -> float | None:
        """Return the mean of a system minus that of another one or of its BASELINE, None if one is not known."""
        own = self.scores.get((system, SYSTEM))
        reference = self.scores.get((system, BASELINE) if other == BASELINE else (other, SYSTEM))
        return None if own is None or reference is None else own - reference


def metric_means(tables: Sequence[SystemTable], reference: str) -> list[MetricMeans]:
    """Return the means of every metric but BLEU. tables, reference: as in `mean_intervals`."""
    pairs = list(tables[0].scores.pairs)
    names = {metric for table in tables for metric in table.scores.metrics}
    return [
        MetricMeans(
            metric=metric,
            scores={
                (table.scores.label, name): mean.score
                for table in tables
                for name in (SYSTEM, BASELINE)
                if (mean := table.mean(pairs, metric, name)) is not None
            },
            intervals=mean_intervals(tables, reference, metric),
        )
        for metric in METRICS
        if metric in names and metric != "bleu"
    ]


def mean_intervals(tables: Sequence[SystemTable], reference: str, metric: str = "bleu") -> Intervals:
    """Return 95 % intervals of differences in means over all pairs, by (system, other system or BASELINE).

    Systems whose test sets are not those of the reference, and systems without baselines, have none. There are none
    where no pair gets a verdict, and none for a metric that was not resampled.

    tables: systems of equal language pairs.
    reference: label of the system that `metric_joint_against` compares with.
    """
    pairs = list(tables[0].scores.pairs)
    if len(without_verdict(tables)) == len(pairs):
        return {}
    means: dict[str, NDArray[np.float64]] = {}
    for table in tables:
        joint_against = table.metric_joint_against.get(metric, {})
        if table.scores.label == reference:
            means[reference] = np.zeros(1)
        elif set(pairs) <= set(joint_against):
            means[table.scores.label] = np.mean([joint_against[pair] for pair in pairs], axis=0)
    over_baselines = {(table.scores.label, BASELINE): table.mean_gain_interval(pairs, metric) for table in tables}
    return {names: interval for names, interval in over_baselines.items() if interval is not None} | {
        (first, second): percentile_interval(means[first] - means[second]) for first, second in permutations(means, 2)
    }


def without_verdict(tables: Sequence[SystemTable]) -> dict[str, str]:
    """Return the reason for each pair that no system gets a verdict on (`eval.score.verdict`)."""
    reasons = {pair: [table.scores.pairs[pair].no_verdict for table in tables] for pair in tables[0].scores.pairs}
    return {pair: of_pair[0] for pair, of_pair in reasons.items() if all(of_pair)}


def headline_of(
    groups: Sequence[FlopsGroup],
    num_pairs: int,
    intervals: Intervals,
    other_metrics: Sequence[MetricMeans] = (),
    *,
    num_baselines: int = 0,
) -> str:
    """Return what was found: the best of several systems, and each against the dense system of equal FLOPs.

    Where no group has both, the best is compared with the second. Behind each difference stands which of the other
    metrics agree with its interval, and the numbers of those that do not.

    intervals: those of `mean_intervals`, of the differences that have one.
    num_baselines: pairs that have a bilingual baseline. Without one for every pair there is no mean gain.
    """

    def checked(system: str, other: str) -> str:
        """Return the interval of a difference in BLEU, and what the other metrics say about it."""
        interval = intervals.get((system, other))
        return "" if interval is None else _bracket(interval) + _agreement(system, other, interval, other_metrics)

    rows = _rows(groups)
    best = _best(rows)
    gain = best[0].numbers["delta_bleu"]
    pairs = f"{num_pairs} language pairs" if num_pairs > 1 else "one language pair"
    names = listed([row.id for row in best]) + (" have" if len(best) > 1 else " has")
    several = f"the highest mean BLEU of {len(rows)} systems over {pairs},"
    highest = several if len(rows) > 1 else f"over {pairs} a mean BLEU of"
    text = f"{names} {highest} {_bleu(best[0]):.1f}{_other_best(rows, best, other_metrics)}"
    if gain is None:
        some = f"with bilingual baselines of {num_baselines} of them"
        none = "without bilingual baselines to compare with"
        text += f", {some if num_baselines else none}."
    else:
        text += f", {_against(gain)} the bilingual baselines{checked(best[0].id, BASELINE)}."
    compared = [
        f"{row.id} {signed(_bleu(row) - _bleu(group.dense))}{checked(row.id, group.dense.id)}"
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
    difference = f"{signed(_bleu(best[0]) - _bleu(other_rows[0]))}{checked(best[0].id, other_rows[0].id)}"
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
        sentences.append(f"{source} not tell {best.id} apart from {listed(level)}.")
    single = [row.id for row in rows if row.num_models == 1]
    if len(single) == len(rows):
        sentences.append("Each system has one seed: another one may change the order.")
    elif single:
        verb = "have" if len(single) > 1 else "has"
        sentences.append(f"{listed(single)} {verb} one seed, so intervals leave out what another one would change.")
    for reason in dict.fromkeys(unjudged.values()):
        pairs = [pair for pair, of_pair in unjudged.items() if of_pair == reason]
        sentences.append(f"There is no verdict on {listed(pairs)} ({reason}), which the means count too.")
    if differences:
        aspects = listed([difference.aspect for difference in differences])
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


def _agreement(system: str, other: str, interval: tuple[float, float], other_metrics: Sequence[MetricMeans]) -> str:
    """Return in parentheses which metrics agree with an interval in BLEU, and the numbers of those that do not.

    A metric agrees if its interval has the same verdict. Without an interval, it agrees if its difference has the sign
    of a significant one in BLEU; otherwise nothing is said of it.
    """
    in_bleu = verdict("bleu", *interval)
    agreeing, texts = [], []
    for means in other_metrics:
        own, delta = means.intervals.get((system, other)), means.difference(system, other)
        if delta is None or (own is None and not in_bleu):
            continue
        title = METRICS[means.metric].title
        if verdict(means.metric, *(own or (delta, delta))) == in_bleu:
            agreeing.append(title)
        else:
            lower = ", where lower is better," if METRICS[means.metric].falling else ""
            texts.append(f"but {title}{lower} {signed(delta)}{_bracket(own) if own else ''}")
    if agreeing:
        texts.insert(0, f"{listed(agreeing)} agree{'s' if len(agreeing) == 1 else ''}")
    return f" ({', '.join(texts)})" if texts else ""


def _other_best(rows: Sequence[CostRow], best: Sequence[CostRow], other_metrics: Sequence[MetricMeans]) -> str:
    """Return in parentheses which other system is the best by other metrics, as scores are printed; empty for none."""
    names = [row.id for row in best]
    texts = []
    for means in other_metrics:
        metric = METRICS[means.metric]
        optional = {row.id: means.scores.get((row.id, SYSTEM)) for row in rows}
        scores = {system: round(score, 1) for system, score in optional.items() if score is not None}
        if len(scores) < len(rows):
            continue
        extreme = min(scores.values()) if metric.falling else max(scores.values())
        if all(scores[name] != extreme for name in names):
            first = next(system for system, score in scores.items() if score == extreme)
            word = "lowest" if metric.falling else "highest"
            texts.append(f"{first} has the {word} mean {metric.title}, {extreme:.1f} against {scores[names[0]]:.1f}")
    return f" ({'; '.join(texts)})" if texts else ""


def _bracket(interval: tuple[float, float]) -> str:
    return f" [{signed(interval[0])}, {signed(interval[1])}]"
