"""Rows of the CSVs of bench/results, and the cells of Markdown tables."""

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from bench.output import RESULTS

Line = dict[str, str]


def read(path: Path) -> list[Line]:
    """Read the rows of a CSV, each with its `line` in the file. The header is line 1."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{**row, "line": f"{number}"} for number, row in enumerate(csv.DictReader(file), start=2)]


def measurements(benchmark: str, **conditions: str) -> Iterator[tuple[Path, Line]]:
    """Yield (file, row) of a benchmark's CSVs, machine after machine. conditions: values that columns must have."""
    for path in sorted(RESULTS.glob(f"{benchmark}-*.csv")):
        for row in read(path):
            if all(row[column] == value for column, value in conditions.items()):
                yield path, row


def markdown(header: tuple[str, ...], lines: Sequence[tuple[str, ...]], texts: Collection[int] = (0,)) -> str:
    """Return a Markdown table, or a sentence without lines. texts: columns of text; all others have numbers."""
    if not lines:
        return "Not measured again since the rules above were made.\n"
    rule = tuple("---" if column in texts else "---:" for column in range(len(header)))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rule, *lines))


def source(path: Path, row: Line) -> str:
    return f"{path.stem}:{row['line']}"


def sources(path: Path, rows: Iterable[Line]) -> str:
    return f"{path.stem}:{','.join(row['line'] for row in rows)}"


def number(value: str, digits: int = 0) -> str:
    """Return a number with so many decimals, or with none from 1,000 on. An empty text stays empty."""
    return f"{float(value):,.{digits if abs(float(value)) < 1000 else 0}f}" if value else ""


def percent(value: str) -> str:
    return f"{100 * float(value):.1f} %" if value else ""


def rate(row: Line, name: str = "tokens_per_second") -> str:
    """Return a median with its spread, or the note of a row without it."""
    return f"{number(row[name])} [{number(row['slowest'])}, {number(row['fastest'])}]" if row[name] else row["note"]


def verdict(row: Line) -> str:
    return f"{number(row['limit'], 2)}: {row['verdict']}" if row["limit"] else ""
