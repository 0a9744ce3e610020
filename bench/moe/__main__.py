"""The command `python -m bench.moe`: run the jobs one by one, print one table, write one CSV."""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.moe.jobs import CPU, CUDA, DTYPES, QUICK, SECTIONS, Job, jobs
from bench.moe.table import COLUMNS, judge, table
from bench.moe.targets import MEMORY
from bench.output import device_name, results_file, write_csv
from pipeline.jobs.launch import process_environment


def main() -> int:
    options = parse()
    scale = QUICK if options.quick else CUDA if options.device == "cuda" else CPU
    job_list = jobs(
        scale,
        device=options.device,
        sections=options.sections or scale.sections,
        experts=options.experts or scale.experts,
        dtypes=options.dtype or scale.dtypes,
        threads=options.threads or scale.threads,
        variants=options.variants or (),
        library=options.library,
    )
    name = device_name(options.device)
    out = results_file("moe", name, options.out, quick=options.quick)
    rows: list[dict[str, Any]] = []
    complete = True
    for job in job_list:
        for row in run(job):
            if job.memory:
                add_memory(rows, row)
            else:
                rows.append(row)
            report(row)
            write_csv(judge(rows), COLUMNS, out)  # after every row, so that an interrupted run leaves its rows
            complete &= row["variant"] != "process"
    print(f"\nOne MoE layer, forward and backward, on {name}\n\n{table(judge(rows))}\n\nwritten to {out}")
    return 0 if complete else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.moe", description="One MoE layer against its peers.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few rounds: does it run?")
    parser.add_argument("--threads", type=int, nargs="+", metavar="N")
    parser.add_argument("--dtype", choices=DTYPES, nargs="+")
    parser.add_argument("--experts", type=int, nargs="+", metavar="E")
    parser.add_argument("--sections", choices=SECTIONS, nargs="+")
    parser.add_argument("--variants", nargs="+", metavar="NAME", help="of the layer section, such as 'ours compiled'")
    parser.add_argument(
        "--library", choices=("best", "mkl"), default="best", help="of float32 products on a CPU; best is training's"
    )
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for moe-<device>.csv; default bench/results")
    return parser.parse_args()


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Run one job in a process of its own and yield its rows. A process that fails adds a row with a note."""
    with tempfile.TemporaryDirectory(prefix="bench-moe-") as directory:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.moe.worker", json.dumps(dataclasses.asdict(job))],
            env=environment(job, Path(directory)),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
        code = process.wait()
    if code:
        common = {"section": job.section, "device": job.device, "dtype": job.dtype, "threads": job.threads}
        yield {**common, **job.sizes[0], "variant": "process", "note": f"ended with exit code {code}"}


def environment(job: Job, directory: Path) -> dict[str, str]:
    """Return the environment of a training process.

    A job that measures memory keeps malloc's defaults. With the settings of training, malloc never returns large
    blocks. The profiler's records lie between such blocks, so the process would grow without bound.
    """
    variables = process_environment(0, 1, job.threads, directory / "rendezvous")
    if job.memory:
        variables = {name: value for name, value in variables.items() if not name.startswith("MALLOC_")}
    return variables | {"KINETO_LOG_LEVEL": "9", "DS_ACCELERATOR": job.device}


def add_memory(rows: list[dict[str, Any]], measured: dict[str, Any]) -> None:
    """Put measured memory into the rows of the same variant and size, with any number of threads."""
    for row in rows:
        if all(row[key] == measured[key] for key in ("section", "dtype", "experts", "variant")):
            row.update({name: measured[name] for name in MEMORY if name in measured})


def report(row: dict[str, Any]) -> None:
    """Print one line of progress."""
    values = {"ms": row.get("ms"), "extra MB": row.get("extra_mb"), "accumulating MB": row.get("accumulating_mb")}
    result = ", ".join(f"{value:.2f} {unit}" for unit, value in values.items() if value is not None) or row["note"]
    block = f"{row['section']} E={row['experts']} {row['dtype']} threads={row['threads']}"
    print(f"{block} {row['variant']}: {result}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
