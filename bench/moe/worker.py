"""One job in a process of its own: `python -m bench.moe.worker '<job as JSON>'`.

The environment sets threads and allocator. Standard output gets one JSON line for each row, and standard error gets
everything else that is printed.
"""

import gc
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from statistics import median
from typing import Any

import torch

from bench.moe.bounds import matmul
from bench.moe.case import Case, Place
from bench.moe.jobs import LARGEST, MATMUL, Job
from bench.moe.memory import extra_memory
from bench.moe.size import Size
from bench.moe.timing import interleave, once
from bench.moe.variants import SLOW, VARIANTS
from pipeline.jobs.matmul import choose_matmul, matmul_library


def measure_times(job: Job, size: Size) -> Iterator[dict[str, Any]]:
    """Yield a row for the matmul and for each variant. A variant that fails has its error as a note."""
    place = Place(device=job.device, precision=job.dtype)
    matmul_place = Place(device=job.device, precision="fp32" if job.dtype == "fp32" else "bf16-weights")
    cases: dict[str, Case] = {MATMUL: matmul(job.matmul, matmul_place)}
    warm = {MATMUL: once(cases[MATMUL])}
    notes: dict[str, str] = {}
    for name in job.variants:
        try:
            cases[name] = build(name, size, place)
            warm[name] = once(cases[name])
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way, which its row tells
            cases.pop(name, None)
            notes[name] = summary(error)
            if job.device == "cuda":
                torch.cuda.empty_cache()
    milliseconds = interleave(cases, warm, seconds=job.seconds, rounds=job.rounds, slow=SLOW)
    for name in (MATMUL, *job.variants):
        row = {**common_columns(job, size), "variant": name, "note": notes.get(name, "")}
        if name in cases:
            runs = milliseconds[name]
            row |= {"ms": median(runs), "ms_least": min(runs), "ms_most": max(runs), "runs": len(runs)}
            row["flops"] = cases[name].flops
        yield row


def measure_memory(job: Job, size: Size) -> Iterator[dict[str, Any]]:
    """Yield a row for each variant. A variant is deleted before the next one is built."""
    for name in job.variants:
        yield {**common_columns(job, size), "variant": name, **memory_columns(name, size, job)}
        gc.collect()


def memory_columns(name: str, size: Size, job: Job) -> dict[str, Any]:
    try:
        case = build(name, size, Place(device=job.device, precision=job.dtype))
        case.run()
        extra = extra_memory(case)
    except Exception as error:  # noqa: BLE001 - as above
        return {"note": summary(error)}
    return {"extra_mb": extra.fresh / 1e6, "accumulating_mb": extra.accumulating / 1e6, "note": ""}


def summary(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def build(name: str, size: Size, place: Place) -> Case:
    """Build a variant. Raises ValueError for one that takes too long at this size."""
    if size.experts > LARGEST.get(name, size.experts):
        raise ValueError(f"not run beyond E={LARGEST[name]}, it takes too long")
    torch.manual_seed(0)
    return VARIANTS[name](size, place)


def common_columns(job: Job, size: Size) -> dict[str, Any]:
    return {
        "section": job.section,
        "device": job.device,
        "dtype": job.dtype,
        "library": matmul_library() if job.device == "cpu" else "",
        "threads": job.threads,
        **asdict(size),
    }


def main() -> None:
    rows = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # peers print; standard output is for rows
    job = Job(**json.loads(sys.argv[1]))
    torch.set_num_threads(job.threads)
    if job.device == "cpu" and job.library == "best":
        choose_matmul()
    measure = measure_memory if job.memory else measure_times
    for size in job.sizes:
        for row in measure(job, Size(**size)):
            print(json.dumps(row), file=rows, flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
