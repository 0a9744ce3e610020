"""One block of measurements in a process of its own: `python -m bench.moe.worker '<job as JSON>'`.

Threads and allocator are set from outside. One JSON line a row goes to standard output, whatever else is printed to
standard error.
"""

import gc
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from bench.moe.bounds import matmul
from bench.moe.case import Case, Place
from bench.moe.memory import extra_memory
from bench.moe.plan import LARGEST, PARTS, Job
from bench.moe.size import Size
from bench.moe.timing import interleave, once
from bench.moe.variants import SLOW, VARIANTS


def measure(job: Job, size: Size) -> Iterator[dict[str, Any]]:
    """A row for each variant and one for the matmul; a variant that fails gives its error as a note."""
    place = Place(device=job.device, precision=job.dtype)
    still = Place(device=job.device, precision="fp32" if job.dtype == "fp32" else "bf16-weights")
    cases: dict[str, Case] = {"matmul": matmul(job.matmul, still)}
    warm = {"matmul": once(cases["matmul"])}
    notes: dict[str, str] = {}
    for name in job.variants:
        if size.experts > LARGEST.get(name, size.experts):
            notes[name] = f"not run beyond E={LARGEST[name]}: too slow"
            continue
        try:
            torch.manual_seed(0)
            cases[name] = VARIANTS[name](size, place)
            warm[name] = once(cases[name])
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way: its row says how
            cases.pop(name, None)
            notes[name] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            if job.device == "cuda":
                torch.cuda.empty_cache()
    milliseconds = interleave(cases, warm, seconds=job.seconds, rounds=job.rounds, slow=SLOW)
    common = {"section": job.section, "device": job.device, "dtype": job.dtype, "threads": job.threads, **asdict(size)}
    for name in ("matmul", *job.variants):
        row: dict[str, Any] = {**common, "variant": name, "note": notes.get(name, "")}
        if name in cases:
            row |= {"ms": min(milliseconds[name]), "runs": len(milliseconds[name]), "flops": cases[name].flops}
            if job.memory and name != "matmul" and name not in PARTS:
                extra = extra_memory(cases[name])
                row |= {"extra_mb": extra.fresh / 1e6, "accumulating_mb": extra.accumulating / 1e6}
            cases[name].clear()
        yield row


def main() -> None:
    rows = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # peers print; standard output is for rows
    job = Job(**json.loads(sys.argv[1]))
    torch.set_num_threads(job.threads)
    for size in job.sizes:
        for row in measure(job, Size(**size)):
            print(json.dumps(row), file=rows, flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
