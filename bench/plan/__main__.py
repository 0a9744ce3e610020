"""`python -m bench.plan`: what the planner says of configurations, and what they take.

With --calibrate the device's rates are measured instead, and written to configs/device/<device>.yaml or where --rates
says.
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
ROUNDS = 6  # of a configuration: timed steps at most
SECONDS = {"cpu": 6.0, "cuda": 3.0}  # after which none begins


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
    device, out, rows = load_device(str(rates)), results_file("plan", name, options.out), []
    for case in predicted:
        rows.append(row(case, device, run(case, options.device, quick=options.quick), name))
        write_csv(rows, COLUMNS, out)  # after every row: a run that is cut short leaves what it has
    print(f"\nPlanned and measured on {name}\n\n{table(rows)}\n\nwritten to {out}")
    return 0 if all(each["parameters"] == each["parameters_measured"] for each in rows) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.plan", description="The planner against this machine.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a tiny model and one step: does it run?")
    parser.add_argument("--calibrate", action="store_true", help="measure the device's rates instead, and write them")
    parser.add_argument("--rates", type=Path, help="the device's YAML; default configs/device/<device>.yaml")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for plan-<device>.csv; default bench/results")
    return parser.parse_args()


def calibrate(kind: str, name: str, fitted: tuple[Case, ...], *, quick: bool) -> Device:
    """The process of a model of nothing is what is there before there is a model."""
    resident = run(TINY, kind, quick=quick).peak
    processes = max(case.world for case in fitted)
    device = directly(kind, name, processes=processes, resident=resident)
    measured = {case: run(case, kind, quick=quick) for case in fitted}
    print(f"the fixed product took up to {reference_drift(measured):.2f} times its shortest time", file=sys.stderr)
    return fit(device, measured)


def run(case: Case, kind: str, *, quick: bool) -> Measured:
    found = measure(case, kind, rounds=1 if quick else ROUNDS, seconds=SECONDS[kind])
    print(
        f"{case.name}: {found.seconds:.3f} to {found.slowest:.3f} s a step, {found.peak / 1e6:,.0f} MB, "
        f"fixed product {found.reference[0] * 1e3:.1f} to {found.reference[1] * 1e3:.1f} ms",
        file=sys.stderr,
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
