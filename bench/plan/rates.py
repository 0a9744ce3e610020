"""Rates of products, copies, small operations and collectives: `python -m bench.plan.rates job.json`.

RANK and WORLD_SIZE must be set. All processes measure at the same time, because they also train at the same time.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.jobs.device import pick_device
from pipeline.jobs.matmul import choose_matmul
from pipeline.jobs.process import StopRequest, run_process
from pipeline.jobs.rendezvous import join_job
from pipeline.train.measure import matmul_peak, peak_dtype

REPEATS = 12
COPIED = {"cpu": 1 << 24, "cuda": 1 << 28}  # elements that are copied
SMALL = 64  # small operations that are timed together
SENT = 1 << 20  # elements that a collective sends


def work(values: dict[str, Any], _stop: StopRequest) -> None:
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = pick_device(values["device"], local_rank=int(os.environ["LOCAL_RANK"]), local_processes=world)
    if device.type == "cpu":
        choose_matmul()
    join_job(device=device, timeout=120)
    flops = {name: matmul_peak(device, peak_dtype(device, name)) / world for name in ("fp32", "bf16")}
    rates = {"flops": flops, **memory_rates(device), **(collectives(device, world) if world > 1 else {})}
    (Path(sys.argv[1]).parent / f"measured-{rank}.json").write_text(json.dumps(rates), encoding="utf-8")


def memory_rates(device: torch.device) -> dict[str, float]:
    """Return `bandwidth`, bytes read and written in a second, and `launch`, seconds of an operation on one number."""
    source = torch.zeros(COPIED[device.type], device=device)
    target, tiny = torch.empty_like(source), torch.zeros(1, device=device)

    def small() -> None:
        for _ in range(SMALL):
            tiny.add_(1.0)

    copied = fastest(lambda: target.copy_(source), device)
    return {"bandwidth": 2 * source.nbytes / copied, "launch": fastest(small, device) / SMALL}


def collectives(device: torch.device, world: int) -> dict[str, Any]:
    """Return `latency`, seconds of the smallest all-reduce, and `rates`, bytes a second and process, by kind."""
    sent = torch.zeros(SENT, device=device)
    received = torch.empty_like(sent)
    gathered = torch.empty(world * SENT, device=device)
    small = torch.zeros(1, device=device)
    gather: Callable[..., Any] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # newer torch
    latency = fastest(lambda: dist.all_reduce(small), device)
    share = (world - 1) / world
    runs: dict[str, tuple[float, Callable[[], Any]]] = {
        "all_reduce": (2 * share * sent.nbytes, lambda: dist.all_reduce(sent)),
        "all_to_all": (share * sent.nbytes, lambda: dist.all_to_all_single(received, sent)),
        "all_gather": (share * gathered.nbytes, lambda: gather(gathered, sent)),
    }
    return {"latency": latency, "rates": {kind: size / fastest(run, device) for kind, (size, run) in runs.items()}}


def fastest(run: Callable[[], Tensor | None], device: torch.device) -> float:
    """Return the shortest seconds of several runs, each until the device's queue is empty."""
    seconds = []
    for _ in range(REPEATS):
        dist.barrier()
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


if __name__ == "__main__":
    run_process(work)
