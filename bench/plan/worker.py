"""One process of one configuration: `python -m bench.plan.worker job.json` with RANK and WORLD_SIZE set.

The process trains on random tokens and writes its measurements to `measured-<rank>.json` beside the job. Before every
timed step it times one fixed product, which tells a slow moment of the machine from a slow step.
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

from bench.plan.case import Case
from pipeline.batch.batch import Batch
from pipeline.engine.optimizer import OptimizerSettings
from pipeline.jobs.device import pick_device
from pipeline.jobs.matmul import choose_matmul
from pipeline.jobs.process import StopRequest, run_process
from pipeline.jobs.rendezvous import join_job
from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from pipeline.train.measure import peak_memory

RATE = 1e-4
REFERENCE = {"cpu": 512, "cuda": 4096}


def work(values: dict[str, Any], _stop: StopRequest) -> None:
    case = Case(**values["case"])
    torch.set_num_threads(1)
    device = pick_device(values["device"], local_rank=int(os.environ["LOCAL_RANK"]), local_processes=case.world)
    if device.type == "cpu":
        choose_matmul()
    rank = int(os.environ["RANK"])
    join_job(device=device, timeout=120)
    result = measure(case, device, warm=values["warm"], rounds=values["rounds"], seconds=values["seconds"])
    (Path(sys.argv[1]).parent / f"measured-{rank}.json").write_text(json.dumps(result), encoding="utf-8")


def measure(case: Case, device: torch.device, *, warm: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Return parameters and memory (bytes) of this process, and seconds of each step and reference product."""
    from pipeline.engine.deepspeed import Engine  # DeepSpeed chooses its device at import

    resident = peak_memory(device).size
    mesh = Mesh.build(case.setup.layout, device)
    model = build(case, mesh)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    setup, workload = case.setup, case.workload
    engine = Engine(
        model.to(device),
        mesh,
        accumulation=setup.accumulation(workload),
        zero_stage=setup.zero_stage,
        clip=1.0,
        optimizer=OptimizerSettings(kind=case.optimizer),
        precision=case.precision,
    )
    engine.train()
    batch = tokens(case).to(device)
    steps: list[float] = []
    reference: list[float] = []
    product = reference_product(device)
    for number in range(warm):
        step(engine, mesh, case, batch, number)
    deadline = time.perf_counter() + seconds
    for number in range(warm, warm + rounds):
        reference.append(timed(product, device))
        steps.append(timed(lambda: step(engine, mesh, case, batch, number), device))  # noqa: B023 - called at once
        late = torch.tensor(float(time.perf_counter() > deadline), device=device)
        dist.all_reduce(late)
        if late:
            break
    peak = peak_memory(device)
    return {
        "parameters": parameters,
        "before": resident,
        "peak": peak.size,
        "memory_source": peak.source,
        "steps": steps,
        "reference": reference,
    }


def build(case: Case, mesh: Mesh) -> Transformer:
    """Return the model, cut for the mesh."""
    workload = case.workload
    model = Transformer(
        workload.model,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
        max_positions=case.length,
    )
    initialize(model, 1)
    partition(model, mesh)
    model.recompute(case.recompute)
    return model


def step(engine: Any, mesh: Mesh, case: Case, batch: Batch, number: int) -> None:
    """Train one step, as `pipeline.train.trainer` does."""
    for group in range(mesh.batch_rank, case.groups, mesh.batch_size):
        seed_group(1, number, group)
        losses = engine(batch, label_smoothing=0.1)
        target = case.groups * batch.decoder_target_tokens_BT.numel()
        engine.backward(losses.share(target_tokens=target, nonempty_groups=case.groups))
        engine.step(RATE)


def timed(run: Callable[[], None], device: torch.device) -> float:
    """Return the seconds from the moment when all processes start until all have ended.

    A single process on a CPU is measured in processor time, which other programs do not add to.
    """
    single_on_cpu = device.type == "cpu" and dist.get_world_size() == 1
    clock = time.process_time if single_on_cpu else time.perf_counter
    dist.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = clock()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.barrier()
    return clock() - start


def reference_product(device: torch.device) -> Callable[[], None]:
    size = REFERENCE[device.type]
    left, right = torch.randn(2, size, size, device=device).unbind()
    out = torch.empty_like(left)

    def run() -> None:
        for _ in range(8):
            torch.mm(left, right, out=out)

    return run


def tokens(case: Case) -> Batch:
    """Return a batch of full rows. Each row is one sentence of random tokens."""
    rows, length = case.rows, case.length
    source = torch.Generator().manual_seed(1)

    def drawn() -> Tensor:
        return torch.randint(4, case.vocabulary, (rows, length), generator=source)

    def filled(value: int) -> Tensor:
        return torch.full((rows, length), value)

    position = torch.arange(length).expand(rows, length).contiguous()
    return Batch(
        encoder_tokens_BL=drawn(),
        encoder_segments_BL=filled(1),
        encoder_positions_BL=position,
        decoder_input_tokens_BT=drawn(),
        decoder_target_tokens_BT=drawn(),
        decoder_segments_BT=filled(1),
        decoder_positions_BT=position,
        pair_BL=filled(0),
        pair_BT=filled(0),
        num_pairs=1,
    )


if __name__ == "__main__":
    run_process(work)
