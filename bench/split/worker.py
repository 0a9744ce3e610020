"""The process that is measured: `python -m bench.split.worker job.json` with RANK and WORLD_SIZE set.

It times steps without the profiler, then profiles one with marks. The batch is full rows of random tokens.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.profiler import ProfilerActivity, profile

from bench.split.parts import mark, seconds_by_part
from bench.split.subject import SETUP, workload_of
from pipeline.batch.assembly import assemble
from pipeline.batch.batch import Batch
from pipeline.engine.optimizer import OptimizerSettings
from pipeline.jobs.device import pick_device
from pipeline.jobs.matmul import choose_matmul
from pipeline.jobs.process import StopRequest, run_process
from pipeline.jobs.rendezvous import join_job
from pipeline.model.flops import TRAINING_FACTOR, expert_row_flops, forward_flops
from pipeline.model.noise import seed_group
from pipeline.parallel.build import build
from pipeline.parallel.mesh import Mesh
from pipeline.plan.workload import Workload
from pipeline.train.measure import matmul_peak, peak_dtype, peak_memory

WARM = 2  # steps before the first timed one, in which ZeRO allocates its memory
RATE = 1e-4


class FullRows:
    """Random sentences, each as long as a row."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.rng = workload, np.random.default_rng(1)

    def source(self, index: int) -> npt.NDArray[Any]:
        return self.rng.integers(4, self.workload.source_vocabulary, self.workload.shape.source)

    def target(self, index: int) -> npt.NDArray[Any]:
        return self.rng.integers(4, self.workload.target_vocabulary, self.workload.shape.target)


def work(values: dict[str, Any], _stop: StopRequest) -> None:
    torch.set_num_threads(1)
    device = pick_device(values["device"], local_rank=int(os.environ["LOCAL_RANK"]), local_processes=1)
    if device.type == "cpu":
        choose_matmul()
    join_job(device=device, timeout=120)
    workload = workload_of(quick=values["quick"], precision=values["precision"])
    result = measure(workload, device, rounds=values["rounds"], trace=values["trace"])
    (Path(sys.argv[1]).parent / "measured-0.json").write_text(json.dumps(result), encoding="utf-8")


def measure(workload: Workload, device: torch.device, *, rounds: int, trace: str) -> dict[str, Any]:
    """Return seconds of steps, of parts, useful FLOPs of a step, the peak of products, and memory. trace: a file."""
    from pipeline.engine.deepspeed import Engine  # DeepSpeed chooses its device at import

    mesh = Mesh.build(SETUP.layout, device)
    model = build(
        workload.model,
        mesh,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
        max_positions=max(workload.shape.source, workload.shape.target),
        seed=1,
    )
    engine = Engine(
        model.to(device),
        mesh,
        accumulation=workload.groups_per_step,
        zero_stage=SETUP.zero_stage,
        clip=1.0,
        optimizer=OptimizerSettings(),
        precision=workload.precision,
    )
    engine.train()
    rows = [[(0, row)] for row in range(workload.shape.rows)]
    batch = assemble(rows, workload.shape, [FullRows(workload)]).to(device)
    dropped = 0.0
    for number in range(WARM):
        dropped = step(engine, workload, batch, number)
    steps = [timed(engine, workload, batch, WARM + number, device) for number in range(rounds)]
    peak = matmul_peak(device, peak_dtype(device, workload.precision))
    mark(model, engine)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as recorded:
        profiled = timed(engine, workload, batch, WARM + rounds, device)
    recorded.export_chrome_trace(trace)
    group = forward_flops(workload.model, workload.target_vocabulary).of_shape(workload.shape)
    nominal = TRAINING_FACTOR * group * workload.groups_per_step
    memory, memory_source = peak_memory(device)
    return {
        "steps": steps,
        "profiled": profiled,
        "parts": seconds_by_part(recorded.events()),
        "useful": nominal - TRAINING_FACTOR * expert_row_flops(workload.model) * dropped,
        "peak": peak,
        "memory": memory,
        "memory_source": memory_source,
    }


def step(engine: Any, workload: Workload, batch: Batch, number: int) -> float:
    """Train one step, as `pipeline.train.trainer` does. Return the expert choices that were dropped."""
    dropped = torch.zeros((), device=batch.pair_BL.device)
    for group in range(workload.groups_per_step):
        seed_group(1, number, group)
        losses = engine(batch, label_smoothing=0.1)
        target = workload.groups_per_step * workload.target_tokens
        engine.backward(losses.share(target_tokens=target, nonempty_groups=workload.groups_per_step))
        engine.step(RATE)
        for layer in losses.statistics:
            dropped += layer.choices - layer.kept
    return float(dropped)


def timed(engine: Any, workload: Workload, batch: Batch, number: int, device: torch.device) -> float:
    """Return the seconds of one step."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    step(engine, workload, batch, number)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


if __name__ == "__main__":
    run_process(work)
