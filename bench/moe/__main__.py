"""`python -m bench.moe`: run the plan block by block, print one table, write one CSV."""

import argparse
import dataclasses
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.moe.plan import CPU, CUDA, DTYPES, QUICK, SECTIONS, Job, jobs
from bench.moe.table import judge, table, write_csv
from pipeline.parallel.launch import process_environment

RESULTS = Path(__file__).resolve().parent.parent / "results"


def main() -> int:
    options = parse()
    scale = QUICK if options.quick else CUDA if options.device == "cuda" else CPU
    planned = jobs(
        scale,
        device=options.device,
        sections=options.sections or scale.sections,
        experts=options.experts or scale.experts,
        dtypes=options.dtype or scale.dtypes,
        threads=options.threads or scale.threads,
        variants=options.variants or (),
    )
    name = device_name(options.device)
    out = options.out or RESULTS
    if out.is_dir() or not out.suffix:
        out /= f"moe-{slug(name)}.csv"
    rows: list[dict[str, Any]] = []
    complete = True
    for job in planned:
        for row in run(job):
            rows.append(row)
            report(row)
            write_csv(judge(rows), out)  # after every row: a run that is cut short leaves what it has
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
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for moe-<device>.csv; default bench/results")
    return parser.parse_args()


def run(job: Job) -> Iterator[dict[str, Any]]:
    """Rows of one job, from a process of its own; a process that dies adds a row that says so."""
    quiet = {"KINETO_LOG_LEVEL": "9", "DS_ACCELERATOR": job.device}
    with tempfile.TemporaryDirectory(prefix="bench-moe-") as directory:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.moe.worker", json.dumps(dataclasses.asdict(job))],
            env=process_environment(0, 1, job.threads, Path(directory) / "rendezvous") | quiet,
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


def report(row: dict[str, Any]) -> None:
    """One line of progress."""
    result = f"{row['ms']:.2f} ms" if row.get("ms") else row["note"]
    where = f"{row['section']} E={row['experts']} {row['dtype']} threads={row['threads']}"
    print(f"{where} {row['variant']}: {result}", file=sys.stderr, flush=True)


def device_name(device: str) -> str:
    """Model of the GPU or CPU."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def slug(name: str) -> str:
    """Lower-case letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
