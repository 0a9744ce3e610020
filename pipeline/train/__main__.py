"""One process of a training job: `python -m pipeline.train job.json` with RANK and WORLD_SIZE set."""

import os
from functools import partial
from typing import Any

from pipeline.parallel.config import layout_of
from pipeline.parallel.device import Place
from pipeline.parallel.mesh import Mesh, start_processes_group
from pipeline.parallel.process import StopRequest, run_process
from pipeline.schema import build
from pipeline.train.job import TrainJob


def train(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(TrainJob, values)
    place = Place.take(job.runtime)
    start_processes_group(
        init_method=os.environ.get("BABELSHARD_RENDEZVOUS", "env://"),
        rank=place.rank,
        world=place.world,
        device=place.device,
        timeout=job.runtime.timeout,
        met=partial(stop.watch, limit=job.runtime.heartbeat),
    )
    from pipeline.train.trainer import Trainer

    Trainer(job, Mesh.build(layout_of(job.layout, job.runtime), place.device), stop).run()


if __name__ == "__main__":
    run_process(train)
