"""The command `python -m bench.decode`: run the systems model by model, print one table, write one CSV."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.decode.contest import run_contest
from bench.decode.prepare import prepare
from bench.decode.systems import FULL, MODELS, QUICK, systems
from bench.decode.table import COLUMNS, judge, rate, table
from bench.output import device_name, results_file, write_csv


def main() -> int:
    options = parse()
    scale = QUICK if options.quick else FULL
    name = device_name(options.device)
    out = results_file("decode", name, options.out, quick=options.quick)
    rows: list[dict[str, Any]] = []
    for model in options.models:
        selected = [
            system for system in systems(model, options.device) if not options.systems or system.name in options.systems
        ]
        with tempfile.TemporaryDirectory(prefix="bench-decode-") as directory:
            material = prepare(model, scale, Path(directory), options.device)
            for row in run_contest(model, selected, material, scale, Path(directory, "systems"), options.device):
                rows.append(row)
                report(row)
                # written after every row, so that an interrupted run leaves its rows
                write_csv([_written(judged) for judged in judge(rows, name)], COLUMNS, out)
    print(f"\nDecoding on {name}\n\n{table(judge(rows, name))}\n\nwritten to {out}")
    return 0 if all(not row["note"] for row in rows if row["system"].startswith("ours")) else 1


def _written(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in COLUMNS}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.decode", description="Beam search and its peers.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="small models and few sentences: does it run?")
    parser.add_argument("--models", choices=tuple(MODELS), nargs="+", default=tuple(MODELS))
    parser.add_argument("--systems", choices=("ours", "transformers", "ctranslate2"), nargs="+")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for decode-<device>.csv; default bench/results")
    return parser.parse_args()


def report(row: dict[str, Any]) -> None:
    """Print one line of progress."""
    result = row["note"] or f"round {row['round']}: {rate(row):,.0f} tokens/s, {row['cpu_seconds']:.1f} s of processors"
    print(f"{row['model']} {row['system']} {row['precision']} ({row['way']}): {result}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
