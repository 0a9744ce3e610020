"""The command `python -m bench.data`: run the sections one by one, print one table, write one CSV."""

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.data import cleaning, encoding, packing, reading
from bench.data.corpus import Text, read_text
from bench.data.scale import AGAINST, FULL, QUICK, SECTIONS, Scale
from bench.data.table import COLUMNS, judge, rate, table
from bench.output import device_name, results_file, write_csv

Measure = Callable[[Text, Scale, Path], Iterator[dict[str, Any]]]
MEASURE: dict[str, Measure] = {
    "cleaning": cleaning.measure,
    "encoding": encoding.measure,
    "reading": reading.measure,
    "packing": packing.measure,
}


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    options = parse()
    scale = QUICK if options.quick else FULL
    name = device_name("cpu")
    out = results_file("data", name, options.out, quick=options.quick)
    text = replace(read_text(options.text, max(scale.rows.values())), mixture=tuple(options.mixture))
    rows: list[dict[str, Any]] = []
    for section in options.sections:
        with tempfile.TemporaryDirectory(prefix="bench-data-") as directory:
            for row in MEASURE[section](text.head(scale.rows[section]), scale, Path(directory) / section):
                rows.append(row)
                report(row)
                # written after every row, so that an interrupted run leaves its rows
                write_csv(judge(rows, name), COLUMNS, out)
    print(f"\nData of {text.name} on {name}\n\n{table(judge(rows, name))}\n\nwritten to {out}")
    return (
        0
        if all(not row["note"] for row in rows if row["section"] != "packing" and row["variant"] not in AGAINST)
        else 1
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.data", description="Cleaning, encoding and reading of text.")
    parser.add_argument("--quick", action="store_true", help="few rows and one round: does it run?")
    parser.add_argument("--sections", choices=SECTIONS, nargs="+", default=SECTIONS)
    parser.add_argument("--text", type=Path, help="TSV of a pair, such as de-en.tsv.xz; default: made from data/sample")
    parser.add_argument("--mixture", type=Path, nargs="+", default=(), help="TSVs of pairs that are packed together")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for data-<device>.csv; default bench/results")
    return parser.parse_args()


def report(row: dict[str, Any]) -> None:
    """Print one line of progress."""
    result = f"{rate(row):,.0f} pairs/s" if row["seconds"] else row["note"]
    contender = f"{row['section']} {row['variant']} threads={row['threads']}"
    print(f"{contender} round {row['round']}: {result}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
