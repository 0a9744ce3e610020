"""One process of a training job: `python -m pipeline.train job.json` with RANK and WORLD_SIZE set."""

from functools import partial
from typing import Any

from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest, run_process
from pipeline.jobs.rendezvous import join_job
from pipeline.parallel.layout import layout_of
from pipeline.parallel.mesh import Mesh
from pipeline.schema import build
from pipeline.train.job import TrainJob


def train(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(TrainJob, values)
    place = Place.take(job.runtime, trains=True)
    join_job(device=place.device, timeout=job.runtime.timeout, met=partial(stop.watch, limit=job.runtime.heartbeat))
    from pipeline.train.trainer import Trainer

    Trainer(job, Mesh.build(layout_of(job.layout, job.runtime), place.device), stop).run()


if __name__ == "__main__":
    run_process(train)
