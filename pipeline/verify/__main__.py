"""One process of the runs of one world: `python -m pipeline.verify job.json`, with RANK and WORLD_SIZE set."""

import gc
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline.jobs.device import pick_device
from pipeline.jobs.process import StopRequest, run_process
from pipeline.jobs.rendezvous import join_job
from pipeline.parallel.mesh import Mesh
from pipeline.schema import build
from pipeline.verify.comparison import EARLY, GRADIENT, LATER, WEIGHT
from pipeline.verify.config import Case, Target, VerifyJob

HEARTBEAT = 30  # seconds, like runtime.heartbeat


def work(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(VerifyJob, values)
    torch.set_num_threads(1)
    rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    device = pick_device(job.device, local_rank=rank, local_processes=world)
    join_job(device=device, timeout=job.timeout, met=partial(stop.watch, limit=HEARTBEAT))
    from pipeline.verify.runs import EngineRun, run_plain

    meshes: dict[str, Mesh] = {}
    for case in job.cases:
        reference = Path(job.out) / f"{case.reference}.safetensors"
        if not case.ep:
            save(reference, run_plain(case, job, stop, device), case, None, device)
            continue
        mesh = mesh_of(case, meshes, device)
        run = EngineRun(case, mesh, job.optimizer, decisions(reference) if case.replayed else None)
        checkpoints = {job.saved_step: job.checkpoint(case)} if case.name in job.saved else {}
        outcome = run.steps(1, job.steps_of(case), stop, checkpoints)
        save(Path(job.out) / f"{case.name}.safetensors", outcome, case, mesh, device)
        del run
        gc.collect()  # engines have reference cycles
    for target in job.targets:
        resume(target, mesh_of(target.case, meshes, device), job, stop)
        gc.collect()


def mesh_of(case: Case, meshes: dict[str, Mesh], device: torch.device) -> Mesh:
    """Return the mesh of a case. It is built once, by a collective."""
    key = f"{case.layout} {case.mesh}"
    if key not in meshes:
        meshes[key] = Mesh.build(case.cut, device)
    return meshes[key]


def resume(target: Target, mesh: Mesh, job: VerifyJob, stop: StopRequest) -> None:
    """Continue from each checkpoint in turn, with one engine. A collective."""
    from pipeline.verify.runs import EngineRun

    run = EngineRun(target.case, mesh, job.optimizer)
    for source in target.sources:
        run.load(job.checkpoint(source))
        outcome = run.steps(job.saved_step + 1, job.short, stop)
        save(Path(job.out) / f"{target.name(source)}.safetensors", outcome, target.case, mesh, mesh.device)


def decisions(reference: Path) -> Any:
    from safetensors import safe_open

    with safe_open(reference, framework="pt") as file:
        return file.get_tensor("decisions")


def save(path: Path, outcome: Any, case: Case, mesh: Mesh | None, device: torch.device) -> None:
    """Write an outcome on the first process. A collective. mesh: None for plain torch."""
    from safetensors.torch import save_file

    from pipeline.verify.runs import extremes, gathered, stacked

    tensors = {"loss": stacked(outcome.losses), "norm": stacked(outcome.norms)}
    for prefix, values in (
        (GRADIENT, outcome.gradients),
        (WEIGHT, outcome.weights),
        (LATER + GRADIENT, outcome.later_gradients),
        (EARLY + WEIGHT, outcome.early_weights),
    ):
        tensors |= {f"{prefix}{name}": value.contiguous() for name, value in values.items()}
    tensors |= extremes(tensors, device)
    tensors["served"] = gathered(outcome.served, case.groups, mesh).to(torch.uint8)
    if mesh is None:
        tensors["decisions"] = gathered(outcome.recorded, case.groups, mesh)
    if dist.get_rank() == 0:
        save_file(tensors, path)


if __name__ == "__main__":
    run_process(work)
