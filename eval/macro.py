"""macro.csv: mean scores over all pairs of a run and over those of high, medium and low resource."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.scores import METRICS, ScoreRow, write_csv

ALL = "all"
THIRDS = ("high", "medium", "low")
_FEWEST_PAIRS = 6  # to be cut into thirds: two each
COLUMNS = ("resource", "system", "metric", "score", "num_pairs", "train_pairs_min", "train_pairs_max", "pairs")


@dataclass(frozen=True, kw_only=True)
class MacroRow:
    """The mean score of a system over the pairs of one resource class, each pair counting the same."""

    resource: str
    system: str
    metric: str
    score: float
    train_pairs_min: int
    train_pairs_max: int
    pairs: tuple[str, ...]


def resource_classes(train_pairs: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """Thirds of the pairs by training pairs (ties by name, the larger third first), then `all`; under six pairs `all`
    alone."""
    ordered = sorted(train_pairs, key=lambda pair: (-train_pairs[pair], pair))
    classes = {}
    if len(ordered) >= _FEWEST_PAIRS:
        size, more = divmod(len(ordered), len(THIRDS))
        ends = [size * (place + 1) + min(place + 1, more) for place in range(len(THIRDS))]
        classes = {name: tuple(ordered[a:b]) for name, a, b in zip(THIRDS, [0, *ends], ends, strict=False)}
    return classes | {ALL: tuple(ordered)}


def macro_means(scores: Sequence[ScoreRow]) -> list[MacroRow]:
    """Of every resource class, system and metric, where the system has a score for all pairs of the class."""
    train_pairs = {row.pair: row.train_pairs for row in scores}
    found = {(row.pair, row.system, row.metric): row.score for row in scores}
    order = [*METRICS, *sorted({row.metric for row in scores} - set(METRICS))]
    kinds = sorted({(row.system, row.metric) for row in scores}, key=lambda kind: (kind[0], order.index(kind[1])))
    return [
        MacroRow(
            resource=resource,
            system=system,
            metric=metric,
            score=sum(found[pair, system, metric] for pair in pairs) / len(pairs),
            train_pairs_min=min(train_pairs[pair] for pair in pairs),
            train_pairs_max=max(train_pairs[pair] for pair in pairs),
            pairs=pairs,
        )
        for resource, pairs in resource_classes(train_pairs).items()
        for system, metric in kinds
        if all((pair, system, metric) in found for pair in pairs)
    ]


def save_macro(path: Path, rows: Sequence[MacroRow]) -> None:
    """Write macro.csv in the order given; four decimals, pairs separated by spaces."""
    cells = []
    for row in rows:
        counts = (len(row.pairs), row.train_pairs_min, row.train_pairs_max)
        cells.append([row.resource, row.system, row.metric, f"{row.score:.4f}", *map(str, counts), " ".join(row.pairs)])
    write_csv(path, COLUMNS, cells)
