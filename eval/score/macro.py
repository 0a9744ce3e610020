"""The file macro.csv: mean scores over all pairs of a run, and over classes of them by their training data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.records.scores import METRICS, ScoreRow, row_cells, write_csv

ALL = "all"
THIRDS = ("high", "medium", "low")
UNTRAINED = "untrained"
_FEWEST_PAIRS = 6  # fewer pairs are not cut into thirds, so that a third has two pairs at least
COLUMNS = ("resource", "system", "metric", "score", "num_pairs", "train_pairs_min", "train_pairs_max", "pairs")


@dataclass(frozen=True, kw_only=True)
class MacroRow:
    """The mean score of a system over the pairs of one resource class. Every pair has the same weight."""

    resource: str
    system: str
    metric: str
    score: float
    train_pairs_min: int
    train_pairs_max: int
    pairs: tuple[str, ...]

    @property
    def num_pairs(self) -> int:
        return len(self.pairs)


def complete_mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values, or None if a value is missing or none is given."""
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present and len(present) == len(values) else None


def resource_classes(train_pairs: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Return the thirds of the pairs by training data, then `untrained` and `all`.

    Pairs without training data are in no third; they are `untrained`, unless no pair has training data. With fewer than
    six other pairs there are no thirds. Pairs with equal data are ordered by name. If the thirds differ in size, the
    higher ones are larger.
    """
    ordered = sorted(train_pairs, key=lambda pair: (-train_pairs[pair], pair))
    trained = [pair for pair in ordered if train_pairs[pair]]
    classes = {}
    if len(trained) >= _FEWEST_PAIRS:
        size, more = divmod(len(trained), len(THIRDS))
        ends = [size * (place + 1) + min(place + 1, more) for place in range(len(THIRDS))]
        classes = {name: tuple(trained[a:b]) for name, a, b in zip(THIRDS, [0, *ends], ends, strict=False)}
    if 0 < len(trained) < len(ordered):
        classes[UNTRAINED] = tuple(ordered[len(trained) :])
    return classes | {ALL: tuple(ordered)}


def macro_means(scores: Sequence[ScoreRow]) -> list[MacroRow]:
    """Return means by resource class, system and metric, where the system has a score for all pairs of the class."""
    train_pairs = {row.pair: row.train_pairs for row in scores}
    score_of = {(row.pair, row.system, row.metric): row.score for row in scores}
    order = [*METRICS, *sorted({row.metric for row in scores} - set(METRICS))]
    kinds = sorted({(row.system, row.metric) for row in scores}, key=lambda kind: (kind[0], order.index(kind[1])))
    return [
        MacroRow(
            resource=resource,
            system=system,
            metric=metric,
            score=sum(score_of[pair, system, metric] for pair in pairs) / len(pairs),
            train_pairs_min=min(train_pairs[pair] for pair in pairs),
            train_pairs_max=max(train_pairs[pair] for pair in pairs),
            pairs=pairs,
        )
        for resource, pairs in resource_classes(train_pairs).items()
        for system, metric in kinds
        if all((pair, system, metric) in score_of for pair in pairs)
    ]


def save_macro(path: Path, rows: Sequence[MacroRow]) -> None:
    """Write macro.csv in the order given, with four decimals and the pairs separated by spaces."""
    write_csv(path, COLUMNS, [row_cells(row, COLUMNS) for row in rows])
