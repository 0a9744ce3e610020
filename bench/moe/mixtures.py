"""Several seeds of a sweep of mixtures in one table: `python -m bench.moe.mixtures runs/mixtures_s*`.

A seed is the directory of a finished sweep, or one with the archives of its runs (`bench.experiment`) and its record.

There is a row for each model, and one for the mean over the seeds of each point of the sweep. That one has the
difference in mean BLEU from a reference, with the interval of the report: it counts test sentences, and seeds if there
are several. Its speed is the median of the seeds, because other work on the machine may have slowed one of them.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.experiment.archive import ENDING, RECORD, restore, score
from bench.experiment.systems import MIXTURE, gate_means
from bench.output import MEAN, Row, aligned, number, results_file, write_csv
from eval.records.results import group_seeds, load_results
from eval.records.run_record import load_losses
from eval.report.findings import mean_intervals
from eval.report.sections.cost import BALANCE, CostRow, cost_groups
from eval.report.sections.scores import scores_section

SWEEP = "sweep.json"  # the record of a sweep, in its directory
COLUMNS = (
    *("point", "settings", "device", "seed", "parameters", "flops_per_token", "validation", "bleu"),
    *("bleu_delta", "ci_low", "ci_high", *BALANCE, *MIXTURE, "tokens_per_second", "run_commit"),
)


def main() -> int:
    options = parse()
    try:
        with tempfile.TemporaryDirectory() as directory:
            sweeps = [_sweep_directory(path, Path(directory, str(place))) for place, path in enumerate(options.sweeps)]
            rows, left_out = compare(sweeps, options.reference), unfinished(sweeps)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    out = results_file("mixtures", rows[0]["device"], options.out)
    write_csv(rows, COLUMNS, out)
    print(table(rows, options.reference))
    if left_out:
        print(f"left out, because no sweep has finished them: {', '.join(left_out)}")
    print(f"\nwritten to {out}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.moe.mixtures", description="Seeds of a sweep in one table.")
    parser.add_argument(
        "sweeps", type=Path, nargs="+", metavar="SWEEP_DIR", help="finished sweeps or their archives, one for each seed"
    )
    parser.add_argument("--reference", default="8e_4l_top2", help="point that the others are compared with")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder; default bench/results")
    return parser.parse_args()


def compare(sweeps: Sequence[Path], reference: str) -> list[dict[str, Any]]:
    """Return the rows of each point, in the order of the first sweep: its mean over seeds, then its runs.

    Points that no sweep has finished are left out.

    reference: name of a point.
    Raises ValueError if a point is not finished in some of the sweeps, if two points have equal settings, or if the
        reference is not among them.
    """
    left_out = unfinished(sweeps)
    settings = {point: words for point, words in _settings(sweeps[0]).items() if point not in left_out}
    if reference not in settings:
        raise ValueError(f"--reference={reference} is no point of {sweeps[0]}; choose one of {', '.join(settings)}")
    names = [""] if len(sweeps) == 1 else [f"_s{place}" for place in range(len(sweeps))]
    directories = [(point + name, path / point) for point in settings for name, path in zip(names, sweeps, strict=True)]
    runs = load_results(directories)
    systems = group_seeds(runs)
    if [system.label for system in systems] != [*settings]:
        raise ValueError("the sweeps do not differ in the seed alone; name sweeps of one experiment")
    losses, validation = (
        {run.label: load_losses(run.directory, kind) for run in runs} for kind in ("train", "validation")
    )
    rows_of = {
        system[0].id: system for group in cost_groups(systems, losses, validation, ()) for system in group.systems
    }
    with tempfile.TemporaryDirectory() as directory:
        section = scores_section(Path(directory), systems)
    intervals = mean_intervals(section["tables"], section["reference"])
    (reference_row, *_) = rows_of[reference]
    rows: list[dict[str, Any]] = []
    for system in systems:
        (mean, *of_runs) = rows_of[system.label]
        about = {"point": system.label, "settings": settings[system.label]}
        about["device"] = system.runs[0].record.environment.get("cpu", "")  # of the training, not of this command
        low, high = intervals.get((system.label, reference), (None, None))
        difference = {"bleu_delta": _bleu(mean) - _bleu(reference_row), "ci_low": low, "ci_high": high}
        numbers = [_numbers(row) for row in of_runs or [mean]]  # one run is its own mean
        speeds = [values["tokens_per_second"] for values in numbers if values["tokens_per_second"] is not None]
        speed = median(speeds) if speeds else None
        of_gate = gate_means(system.runs)
        rows.append({**about, **_numbers(mean), **of_gate, "seed": MEAN, "tokens_per_second": speed, **difference})
        for values, run in zip(numbers, system.runs, strict=True):
            rows.append({**about, **values, **gate_means([run]), "run_commit": run.record.commit[:10]})
    return rows


def unfinished(sweeps: Sequence[Path]) -> list[str]:
    """Return the points that no sweep has finished."""
    return [point for point in _settings(sweeps[0]) if not any((path / point / RECORD).is_file() for path in sweeps)]


def table(rows: Sequence[Row], reference: str) -> str:
    """Return the means as a table for a terminal."""
    lines = [["point", "loss", "BLEU", f"to {reference}", "95 %", *BALANCE, "tokens/s"]]
    for row in rows:
        if row["seed"] == MEAN:
            interval = "" if row["ci_low"] is None else f"{row['ci_low']:+.2f} to {row['ci_high']:+.2f}"
            scores = [number(row["validation"], 3), number(row["bleu"], 2), f"{row['bleu_delta']:+.2f}", interval]
            balance = [number(row[name], 2) for name in BALANCE]
            lines.append([str(row["point"]), *scores, *balance, number(row["tokens_per_second"])])
    return aligned(lines, left=["point"])


def _sweep_directory(sweep: Path, directory: Path) -> Path:
    """Return the directory of a sweep; if it has archives, the one given, into which its runs are restored."""
    if not any(sweep.glob(f"*{ENDING}")):
        return sweep
    for run in restore(sweep, directory):
        score(run)
    return Path(shutil.copy(sweep / SWEEP, directory)).parent


def _settings(sweep: Path) -> dict[str, str]:
    """Return the settings that not all points have, by the name of the point. Raises ValueError without a sweep."""
    if not (sweep / SWEEP).is_file():
        raise ValueError(f"{sweep} has no {SWEEP}; name the directory of a finished sweep")
    record = json.loads((sweep / SWEEP).read_text(encoding="utf-8"))
    points = {point["id"]: point["overrides"] for point in record["points"] if point["role"] == "point"}
    common = set.intersection(*map(set, points.values()))
    return {point: " ".join(word for word in words if word not in common) for point, words in points.items()}


def _numbers(row: CostRow) -> dict[str, Any]:
    values = row.numbers
    steps, tokens = values["steps_per_second"], values["batch_tokens"]
    names = ("parameters", "flops_per_token", "validation", "bleu", *BALANCE)
    rate = None if steps is None or tokens is None else steps * tokens
    return {**{name: values[name] for name in names}, "tokens_per_second": rate, "seed": row.seed}


def _bleu(row: CostRow) -> float:
    return row.numbers["bleu"] or 0.0


if __name__ == "__main__":
    sys.exit(main())
