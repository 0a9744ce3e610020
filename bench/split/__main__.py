"""The command `python -m bench.split`: MFU of a training step, and its time by part beside the planner's prediction.

It writes split-<device>.csv, and beside it the profiler's trace of a step, split-<device>-<precision>.json.gz, which
chrome://tracing and ui.perfetto.dev show.
"""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from bench.output import device_name, results_file, slug, write_csv
from bench.plan.measuring import start
from bench.split.subject import workload_of
from bench.split.table import COLUMNS, rows_of, table
from pipeline.plan.devices import load_device

ROUNDS = 5


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    options = parse()
    name = device_name(options.device)
    rates = load_device(str(options.rates) if options.rates else rates_for(options.device, name))
    out, rows = results_file("split", name, options.out, quick=options.quick), []
    out.parent.mkdir(parents=True, exist_ok=True)
    for precision in options.dtype:
        workload = workload_of(quick=options.quick, precision=precision)
        trace = out.with_name(f"split-{slug(name)}-{precision}.json.gz").resolve()
        job: dict[str, Any] = {"device": options.device, "quick": options.quick, "precision": precision}
        job |= {"rounds": 1 if options.quick else ROUNDS, "trace": str(trace)}
        (measured,) = start("bench.split.worker", job, processes=1, title=f"{workload.recipe} {precision}")
        split = rows_of(workload, rates, measured, name)
        rows += split
        write_csv(rows, COLUMNS, out)  # after every precision, so that an interrupted run leaves its rows
        print(
            f"\nA step of {workload.recipe} in {precision} on {name}\n\n{table(split)}\n\ntrace in {trace}", flush=True
        )
    print(f"written to {out}")
    return 0


def rates_for(device: str, name: str) -> str:
    """Return the name of the planner's rates for a device; those of the H100 for an unknown GPU."""
    matches = [rates for rates in ("b200", "h200", "h100", "a100") if rates in name.lower()]
    return "cpu" if device == "cpu" else (*matches, "h100")[0]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.split", description="A training step by part.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a tiny model and one step: does it run?")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), nargs="+", default=["bf16"])
    parser.add_argument("--rates", type=Path, help="the planner's YAML of the device; default by its name")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for split-<device>.csv; default bench/results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
