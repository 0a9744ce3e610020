"""One process of the runs of one world: `python -m pipeline.verify job.json` with RANK and WORLD_SIZE set."""

import gc
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pipeline.parallel.device import pick_device
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh, start_processes_group
from pipeline.parallel.process import StopRequest, run_process
from pipeline.schema import build
from pipeline.verify.config import Case, VerifyJob

HEARTBEAT = 30  # seconds, as runtime.heartbeat


def work(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(VerifyJob, values)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    device = pick_device("cpu", local_rank=rank, local_processes=world)
    start_processes_group(
        init_method=os.environ["BABELSHARD_RENDEZVOUS"],
        rank=rank,
        world=world,
        device=device,
        timeout=job.timeout,
        met=partial(stop.watch, limit=HEARTBEAT),
    )
    from pipeline.verify.runs import run_engine, run_plain

    meshes: dict[int, Mesh] = {}
    for case in job.cases:
        reference = Path(job.out) / f"{case.reference}.safetensors"
        if not case.ep:  # the reference
            save(reference, run_plain(case, job.steps, job.optimizer, stop), case, job.steps, rank)
            continue
        if case.ep not in meshes:
            meshes[case.ep] = Mesh.build(Layout.gshard(world, case.ep), device)
        given = decisions(reference) if case.replayed else None
        outcome = run_engine(case, meshes[case.ep], job.steps, job.optimizer, given, stop)
        save(Path(job.out) / f"{case.name}.safetensors", outcome, case, job.steps, rank)
        gc.collect()  # engines hold circles


def decisions(reference: Path) -> Any:
    from safetensors import safe_open

    with safe_open(reference, framework="pt") as file:
        return file.get_tensor("decisions")


def save(path: Path, outcome: Any, case: Case, steps: int, rank: int) -> None:
    """Write an outcome from the first process. A collective."""
    from safetensors.torch import save_file

    from pipeline.verify.runs import gathered, stacked

    tensors = {"loss": stacked(outcome.losses), "norm": stacked(outcome.norms)}
    tensors["served"] = gathered(outcome.served, steps, case.groups).to(torch.uint8)
    if not case.ep:
        tensors["decisions"] = gathered(outcome.noted, steps, case.groups)
    tensors |= {f"gradient of {name}": value.contiguous() for name, value in outcome.gradients.items()}
    tensors |= {f"weight {name}": value.contiguous() for name, value in outcome.weights.items()}
    if rank == 0:
        save_file(tensors, path)


if __name__ == "__main__":
    run_process(work)
