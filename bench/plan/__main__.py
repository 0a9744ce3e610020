"""The command `python -m bench.plan`: predict and measure the memory and time of configurations.

With --calibrate it measures the device's rates instead, and writes them to configs/device/<device>.yaml or to --rates.
"""

import argparse
import logging
import sys
from pathlib import Path

from bench.output import device_name, results_file, write_csv
from bench.plan import cases
from bench.plan.calibration import as_yaml, directly, fit
from bench.plan.case import Case
from bench.plan.measuring import Measured, measure, reference_drift
from bench.plan.table import COLUMNS, row, table
from pipeline.plan.devices import DEVICES, load_device
from pipeline.plan.workload import Device

TINY = Case(dim=16, layers=1, rows=1, length=8, vocabulary=64, groups=1)
ROUNDS = 6  # most timed steps of a configuration
SECONDS = {"cpu": 6.0, "cuda": 3.0}  # no timed step begins after so long


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    options = parse()
    name = device_name(options.device)
    fitted, predicted = cases.of(options.device, quick=options.quick)
    rates = options.rates or DEVICES / f"{options.device}.yaml"
    if options.calibrate:
        rates.parent.mkdir(parents=True, exist_ok=True)
        rates.write_text(as_yaml(calibrate(options.device, name, fitted, quick=options.quick)), encoding="utf-8")
        print(f"rates of {name} written to {rates}")
        return 0
    device, out, rows = load_device(str(rates)), results_file("plan", name, options.out, quick=options.quick), []
    for case in predicted:
        rows.append(row(case, device, run(case, options.device, quick=options.quick), name))
        write_csv(rows, COLUMNS, out)  # after every row, so that an interrupted run leaves its rows
    print(f"\nPlanned and measured on {name}\n\n{table(rows)}\n\nwritten to {out}")
    return 0 if all(judged["parameters"] == judged["parameters_measured"] for judged in rows) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.plan", description="The planner against this machine.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a tiny model and one step: does it run?")
    parser.add_argument("--calibrate", action="store_true", help="measure the device's rates instead, and write them")
    parser.add_argument("--rates", type=Path, help="the device's YAML; default configs/device/<device>.yaml")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for plan-<device>.csv; default bench/results")
    return parser.parse_args()


def calibrate(kind: str, name: str, fitted: tuple[Case, ...], *, quick: bool) -> Device:
    """Measure the device's rates and fit them. A tiny model gives the memory of a process before it has a model."""
    resident = run(TINY, kind, quick=quick).peak
    processes = max(case.world for case in fitted)
    device = directly(kind, name, processes=processes, resident=resident)
    measured = {case: run(case, kind, quick=quick) for case in fitted}
    print(f"the fixed product took up to {reference_drift(measured):.2f} times its shortest time", file=sys.stderr)
    return fit(device, measured)


def run(case: Case, kind: str, *, quick: bool) -> Measured:
    measured = measure(case, kind, rounds=1 if quick else ROUNDS, seconds=SECONDS[kind])
    print(
        f"{case.name}: {measured.seconds:.3f} to {measured.slowest:.3f} s a step, {measured.peak / 1e6:,.0f} MB, "
        f"fixed product {measured.reference[0] * 1e3:.1f} to {measured.reference[1] * 1e3:.1f} ms",
        file=sys.stderr,
        flush=True,
    )
    return measured


if __name__ == "__main__":
    sys.exit(main())
