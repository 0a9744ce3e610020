"""Restore a run on this topology and save it to `again`, without a step between."""

from typing import Any

from pipeline.engine.checkpoint.logical import code_version, save
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest, run_process
from pipeline.jobs.rendezvous import join_job
from pipeline.parallel.layout import layout_of
from pipeline.parallel.mesh import Mesh
from pipeline.schema import build
from pipeline.train.job import TrainJob


def work(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(TrainJob, values)
    place = Place.take(job.runtime)
    join_job(device=place.device, timeout=job.runtime.timeout)
    from pipeline.train.trainer import Trainer

    trainer = Trainer(job, Mesh.build(layout_of(job.layout, job.runtime), place.device), stop)
    tensors = {**trainer.window.tensors(), **trainer.engine.state()}
    save(trainer.checkpoints.newest.with_name("again"), tensors, {**trainer._state(None), "code": code_version()})


if __name__ == "__main__":
    run_process(work)
