"""The files scores.csv and significance.csv: one row a score, one row a comparison with the baseline."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM = "moe"
BASELINE = "bilingual"
METRIC_NAMES = {
    "bleu": "BLEU",
    "chrf++": "chrF++",
    "chrf": "chrF",
    "ter": "TER",
    "spbleu": "spBLEU",
    "spbleu101": "spBLEU-101",
}
METRICS = tuple(METRIC_NAMES)  # of sacreBLEU; a translation edit rate falls
SCORE_COLUMNS = (
    "pair",
    "system",
    "train_pairs",
    "metric",
    "score",
    "ci_low",
    "ci_high",
    "n_test",
    "signature",
)
SIGNIFICANCE_COLUMNS = ("pair", "metric", "delta", "ci_low", "ci_high", "p_value", "n_resamples", "seed")


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """A system's score (0 to 100) on one pair's test set; train_pairs and n_test count sentence pairs."""

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
    """The system minus the baseline on one pair, with the 95 % interval of the difference."""

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
        """+1 or -1 where the 95 % interval of the difference excludes zero, else 0."""
        return int(self.ci_low > 0) - int(self.ci_high < 0)


def save_scores(path: Path, rows: Sequence[ScoreRow]) -> None:
    """Write scores.csv, largest training set first, then by pair, system and metric; four decimals."""
    ordered = sorted(rows, key=lambda row: (-row.train_pairs, row.pair, row.system, row.metric))
    cells = [
        [row.pair, row.system, str(row.train_pairs), row.metric]
        + [f"{value:.4f}" for value in (row.score, row.ci_low, row.ci_high)]
        + [str(row.n_test), row.signature]
        for row in ordered
    ]
    write_csv(path, SCORE_COLUMNS, cells)


def load_scores(path: Path) -> list[ScoreRow]:
    """Read scores.csv; ValueError naming the file, line and field of anything that does not parse."""
    return [
        ScoreRow(
            pair=record["pair"],
            system=record["system"],
            train_pairs=_integer(record, "train_pairs", place),
            metric=record["metric"],
            score=_number(record, "score", place),
            ci_low=_number(record, "ci_low", place),
            ci_high=_number(record, "ci_high", place),
            n_test=_integer(record, "n_test", place),
            signature=record["signature"],
        )
        for place, record in _read_csv(path, SCORE_COLUMNS)
    ]


def save_significance(path: Path, rows: Sequence[SignificanceRow]) -> None:
    """Write significance.csv in the order given; four decimals, six for the p-value."""
    cells = [
        [row.pair, row.metric]
        + [f"{value:.4f}" for value in (row.delta, row.ci_low, row.ci_high)]
        + [f"{row.p_value:.6f}", str(row.n_resamples), str(row.seed)]
        for row in rows
    ]
    write_csv(path, SIGNIFICANCE_COLUMNS, cells)


def load_significance(path: Path) -> list[SignificanceRow]:
    """Read significance.csv; ValueError naming the file, line and field of anything that does not parse."""
    return [
        SignificanceRow(
            pair=record["pair"],
            metric=record["metric"],
            delta=_number(record, "delta", place),
            ci_low=_number(record, "ci_low", place),
            ci_high=_number(record, "ci_high", place),
            p_value=_number(record, "p_value", place),
            n_resamples=_integer(record, "n_resamples", place),
            seed=_integer(record, "seed", place),
        )
        for place, record in _read_csv(path, SIGNIFICANCE_COLUMNS)
    ]


def write_csv(path: Path, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Write a header and rows, ended by line feeds."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(cells)


def _read_csv(path: Path, columns: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; run the stage score (eval.scoring.write_scores) first")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if tuple(header) != tuple(columns):
            raise ValueError(f"{path} has columns {','.join(header)}; expected {','.join(columns)}")
        records = []
        for cells in reader:
            place = f"{path}:{reader.line_num}"
            if len(cells) != len(columns):
                raise ValueError(f"{place} has {len(cells)} fields; expected {len(columns)}")
            records.append((place, dict(zip(columns, cells, strict=True))))
        return records


def _number(record: Mapping[str, str], field: str, place: str) -> float:
    try:
        return float(record[field])
    except ValueError as error:
        raise ValueError(f"{place} {field}={record[field]!r} is not a number; score the run again") from error


def _integer(record: Mapping[str, str], field: str, place: str) -> int:
    try:
        return int(record[field])
    except ValueError as error:
        raise ValueError(f"{place} {field}={record[field]!r} is not a whole number; score the run again") from error
