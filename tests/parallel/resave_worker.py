"""Restores a run on this topology and writes what it holds to `again`, without a step between."""

import os
from typing import Any

from pipeline.parallel.checkpoint import code_version, save
from pipeline.parallel.config import layout_of
from pipeline.parallel.device import Place
from pipeline.parallel.mesh import Mesh, start_processes_group
from pipeline.parallel.process import StopRequest, run_process
from pipeline.schema import build
from pipeline.train.job import TrainJob


def work(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(TrainJob, values)
    place = Place.take(job.runtime)
    start_processes_group(
        init_method=os.environ["BABELSHARD_RENDEZVOUS"],
        rank=place.rank,
        world=place.world,
        device=place.device,
        timeout=job.runtime.timeout,
    )
    from pipeline.train.trainer import Trainer

    trainer = Trainer(job, Mesh.build(layout_of(job.layout, job.runtime), place.device), stop)
    tensors = {**trainer.window.tensors(), **trainer.engine.state()}
    save(trainer.checkpoints.found.with_name("again"), tensors, {**trainer._state(None), "code": code_version()})


if __name__ == "__main__":
    run_process(work)
