"""One process of our own contender: `python -m bench.train.ours job.json` with RANK and WORLD_SIZE set.

It is `pipeline.train` with three things around it: turns, a stopwatch, and no end but that of the turns.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bench.train.stopwatch import Stopwatch, observe
from bench.train.turns import Turns
from pipeline.batch.packing import Step
from pipeline.parallel.device import Place
from pipeline.parallel.matmul import matmul_library
from pipeline.parallel.mesh import Mesh, start_processes_group
from pipeline.parallel.process import StopRequest, run_process
from pipeline.schema import build
from pipeline.train.job import TrainJob
from pipeline.train.records import Records


def train(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(TrainJob, values["job"])
    place = Place.take(job.runtime)
    start_processes_group(
        init_method=os.environ["BABELSHARD_RENDEZVOUS"],
        rank=place.rank,
        world=place.world,
        device=place.device,
        timeout=job.runtime.timeout,
    )
    watch = Stopwatch()
    observe(watch)
    from pipeline.train.trainer import Trainer

    class Contender(Trainer):
        """Takes turns before each step."""

        turns: Turns | None = None

        def _step(self, steps: Iterator[Step], records: Records | None, peak: float) -> bool:
            if self.turns is None:
                constants = {"parameters": self.parameters.total, "peak": peak, "library": library(job, place.device)}
                self.turns = Turns(Path(values["directory"]), values["rounds"], rank=self.rank, constants=constants)
                steps_taken[:] = [watch.iterate("data", steps)]
            p = self.progress
            first = self.rank == 0  # every process knows the whole step's counts
            self.turns.step(
                target_tokens=p.target_tokens * first,
                useful_flops=p.useful_flops * first,
                executed_flops=p.executed_flops * first,
                **watch.seconds,
            )
            return super()._step(steps_taken[0], records, peak)

    steps_taken: list[Iterator[Step]] = []
    Contender(job, Mesh.build(expert=job.runtime.ep, device=place.device), stop).run()


def library(job: TrainJob, device: torch.device) -> str:
    """Of the products whose rate is the peak; bfloat16 ones are oneDNN's on every CPU."""
    if device.type == "cuda":
        return "cublas"
    return "onednn" if job.train.precision == "bf16" else matmul_library()


if __name__ == "__main__":
    run_process(train)
