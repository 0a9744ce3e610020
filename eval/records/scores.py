"""The files scores.csv and significance.csv: rows of scores, and rows of comparisons with the baseline.

forgetting.csv has rows of comparisons with the model that the training started from.
"""

import csv
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SYSTEM = "moe"
BASELINE = "bilingual"
PIVOT = "pivot"  # the multilingual model in two steps, through a third language
INITIAL = "initial"  # the model whose weights the training started from
TITLES = {SYSTEM: "multilingual", BASELINE: "bilingual", PIVOT: "in two steps"}  # of systems, for readers
ONE_STEP = "in one step"  # the multilingual model, where it was trained on no direction of a test set
FORGETTING = "forgetting.csv"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric of sacreBLEU, or one that a command of the user's computes (eval/score/by_command.py).

    `scorer_for` in eval/score/metrics.py builds the object that computes a metric of sacreBLEU.

    title: its name in reports.
    falling: a lower score is better.
    by_word: it compares words, which are cut at spaces where a language has no tokenizer.
    sentence_piece: the name of sacreBLEU's SentencePiece model that cuts text for it, or empty.
    by_command: its score is the mean over sentences of the numbers that a command prints, times `scale`.
    """

    title: str
    falling: bool = False
    by_word: bool = False
    sentence_piece: str = ""
    by_command: bool = False
    scale: float = 1.0


METRICS = {
    "bleu": Metric(title="BLEU", by_word=True),
    "chrf++": Metric(title="chrF++"),
    "chrf": Metric(title="chrF"),
    "ter": Metric(title="TER", falling=True, by_word=True),
    "spbleu": Metric(title="spBLEU", sentence_piece="flores200"),
    "spbleu101": Metric(title="spBLEU-101", sentence_piece="flores101"),
    "bleu_tok": Metric(title="tokenized BLEU", by_word=True),
    "comet": Metric(title="COMET", by_command=True, scale=100.0),
    "cometkiwi": Metric(title="CometKiwi", by_command=True, scale=100.0),
    "metricx": Metric(title="MetricX", by_command=True, falling=True),
}
SACREBLEU_METRICS = tuple(name for name, metric in METRICS.items() if not metric.by_command)  # BLEU is the first


def verdict(metric: str, ci_low: float, ci_high: float) -> int:
    """Return +1 (better) or -1 (worse) if the interval of a difference excludes zero, else 0."""
    sign = int(ci_low > 0) - int(ci_high < 0)
    return -sign if metric in METRICS and METRICS[metric].falling else sign


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """A system's score (0 to 100) on one pair's test set. train_pairs and n_test count sentence pairs."""

    pair: str
    system: str
    train_pairs: int
    metric: str
    score: float
    ci_low: float
    ci_high: float
    n_test: int
    signature: str


@dataclass(frozen=True, kw_only=True)
class SignificanceRow:
    """The score of the system minus that of the baseline on one pair, with the 95 % interval of the difference."""

    pair: str
    metric: str
    delta: float
    ci_low: float
    ci_high: float
    p_value: float
    n_resamples: int
    seed: int

    @property
    def verdict(self) -> int:
        """Return +1 (better) or -1 (worse) if the 95 % interval of the difference excludes zero, else 0."""
        return verdict(self.metric, self.ci_low, self.ci_high)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One metric on one pair's test set, before and after the change.

    before, after: scores from 0 to 100, with the bounds of their 95 % intervals.
    delta: after minus before, with its interval and p-value by paired bootstrap.
    """

    pair: str
    metric: str
    before: float
    before_low: float
    before_high: float
    after: float
    after_low: float
    after_high: float
    delta: float
    delta_low: float
    delta_high: float
    p_value: float
    n_test: int
    n_resamples: int
    seed: int
    signature: str

    @property
    def ci_low(self) -> float:
        return self.delta_low

    @property
    def ci_high(self) -> float:
        return self.delta_high


Row = TypeVar("Row", bound="DataclassInstance")


def save_scores(path: Path, rows: Sequence[ScoreRow]) -> None:
    """Write scores.csv: the largest training set first, then by pair, system and metric."""
    ordered = sorted(rows, key=lambda row: (-row.train_pairs, row.pair, row.system, row.metric))
    names = field_names(ScoreRow)
    write_csv(path, names, [row_cells(row, names) for row in ordered])


def save_significance(path: Path, rows: Sequence[SignificanceRow]) -> None:
    """Write significance.csv in the order given."""
    names = field_names(SignificanceRow)
    write_csv(path, names, [row_cells(row, names) for row in rows])


def load_scores(path: Path) -> list[ScoreRow]:
    """Read scores.csv. Raises ValueError with the file, line and field of a value that cannot be read."""
    return load_rows(path, ScoreRow)


def load_significance(path: Path) -> list[SignificanceRow]:
    """Read significance.csv. Raises ValueError with the file, line and field of a value that cannot be read."""
    return load_rows(path, SignificanceRow)


def load_forgetting(directory: Path) -> list[Change]:
    """Read forgetting.csv of a run; no rows without the file. Raises ValueError as `load_scores`."""
    return load_rows(directory / FORGETTING, Change) if (directory / FORGETTING).is_file() else []


def field_names(row_type: Any) -> list[str]:
    """Return the names of a dataclass's fields, which are the columns of its CSV file."""
    return [field.name for field in fields(row_type)]


def row_cells(row: Any, names: Sequence[str]) -> list[str]:
    """Return the cells of a dataclass row for some of its fields and properties.

    Floats have four decimals, and p-values six. Texts of a tuple are separated by spaces. None is an empty cell.
    """
    floats = {field.name for field in fields(row) if field.type is float}
    cells = []
    for name in names:
        value = getattr(row, name)
        if name in floats:
            cells.append(f"{value:.{6 if name.startswith('p_') else 4}f}")
        else:
            cells.append(" ".join(value) if isinstance(value, tuple) else "" if value is None else str(value))
    return cells


def write_csv(path: Path, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Write a header and rows of cells, with line feeds as line ends."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(cells)


def load_rows(path: Path, row_type: type[Row]) -> list[Row]:
    """Read a CSV of dataclass rows. Raises ValueError with the file, line and field of a value that cannot be read."""
    columns = field_names(row_type)
    if not path.is_file():
        raise ValueError(f"{path} does not exist; run the stage score (eval.score.run.write_scores) first")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if header != columns:
            raise ValueError(f"{path} has columns {','.join(header)}; expected {','.join(columns)}")
        rows = []
        for cells in reader:
            place = f"{path}:{reader.line_num}"
            if len(cells) != len(columns):
                raise ValueError(f"{place} has {len(cells)} fields; expected {len(columns)}")
            typed = zip(fields(row_type), cells, strict=True)
            rows.append(row_type(**{field.name: _parse(field, cell, place) for field, cell in typed}))
        return rows


def _parse(field: Field[Any], cell: str, place: str) -> Any:
    if field.type == int | None:
        return None if cell == "" else _parse_as(int, field, cell, place)
    return _parse_as(field.type, field, cell, place)


def _parse_as(cell_type: Any, field: Field[Any], cell: str, place: str) -> Any:
    try:
        return cell_type(cell)
    except ValueError as error:
        kind = "whole number" if cell_type is int else "number"
        raise ValueError(f"{place} {field.name}={cell!r} is not a {kind}; score the run again") from error
