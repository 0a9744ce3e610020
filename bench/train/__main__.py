"""The command `python -m bench.train`: run the contests one by one, print one table, write one CSV."""

import argparse
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.output import device_name, results_file, write_csv
from bench.train.contenders import CPU, CUDA, PEERS, QUICK, SECTIONS, Contest, contests
from bench.train.contest import run_contest
from bench.train.data import prepare_sample
from bench.train.table import COLUMNS, judge, rate, table


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    options = parse()
    scale = QUICK if options.quick else CUDA if options.device == "cuda" else CPU
    contest_list = contests(
        scale,
        device=options.device,
        sections=options.sections or scale.sections,
        dtypes=options.dtype or scale.dtypes,
        peers=options.peers,
    )
    name = device_name(options.device)
    out = results_file("train", name, options.out, quick=options.quick)
    results: list[tuple[Contest, list[dict[str, Any]]]] = []
    for contest in contest_list:
        sample = prepare_sample(contest, scale.pairs)
        rows: list[dict[str, Any]] = []
        results.append((contest, rows))
        with tempfile.TemporaryDirectory(prefix="bench-train-") as directory:
            for row in run_contest(contest, sample, Path(directory)):
                rows.append(row)
                report(contest, row)
                # written after every row, so that an interrupted run leaves its rows
                write_csv([row for result in results for row in judge(*result)], COLUMNS, out)
    judged = [row for result in results for row in judge(*result)]
    judged.sort(key=lambda row: SECTIONS.index(row["section"]))
    write_csv(judged, COLUMNS, out)
    print(f"\nTraining on {name}\n\n{table(judged)}\n\nwritten to {out}")
    return 0 if all(row["note"] == "" for _, rows in results for row in rows if row["variant"] == "ours") else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.train", description="The training loop and its peers.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a tiny model and few rounds: does it run?")
    parser.add_argument("--sections", choices=SECTIONS, nargs="+")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), nargs="+", help="of our own sections; peers train in fp32")
    parser.add_argument("--peers", choices=PEERS, nargs="+", default=PEERS)
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for train-<device>.csv; default bench/results")
    return parser.parse_args()


def report(contest: Contest, row: dict[str, Any]) -> None:
    """Print one line of progress."""
    result = row["note"] or f"round {row['round']}: {rate(row):,.0f} target tokens/s"
    contender = f"{row['variant']} {row['processes']} x {row['threads']}"
    print(f"{contest.title} {contest.dtype} {contender}: {result}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
