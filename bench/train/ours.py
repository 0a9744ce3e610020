"""One process of our own contender: `python -m bench.train.ours job.json` with RANK and WORLD_SIZE set.

It is `pipeline.train` with a trainer that takes turns, a stopwatch around what it calls, and no end but that of turns.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bench.train.stopwatch import Stopwatch, observe
from bench.train.turns import Turns
from pipeline.batch.packing import Step
from pipeline.parallel.matmul import matmul_library
from pipeline.parallel.process import StopRequest, run_process
from pipeline.train import trainer
from pipeline.train.__main__ import train
from pipeline.train.job import TrainJob
from pipeline.train.records import Records


def compete(values: dict[str, Any], stop: StopRequest) -> None:
    watch = Stopwatch()
    observe(watch)

    class Contender(trainer.Trainer):
        """Takes turns before each step."""

        turns: Turns | None = None
        steps: Iterator[Step]

        def _step(self, steps: Iterator[Step], records: Records | None, peak: float) -> bool:
            if self.turns is None:
                library = product_library(self.job, self.device)
                constants = {"parameters": self.parameters.total, "peak": peak, "library": library}
                self.turns = Turns(Path(values["directory"]), values["rounds"], rank=self.rank, constants=constants)
                self.steps = watch.iterate("data", steps)
            p = self.progress
            first = self.rank == 0  # every process knows the whole step's counts
            self.turns.step(
                target_tokens=p.target_tokens * first,
                useful_flops=p.useful_flops * first,
                executed_flops=p.executed_flops * first,
                **watch.seconds,
            )
            return super()._step(self.steps, records, peak)

    trainer.Trainer = Contender  # type: ignore[misc]
    train(values["job"], stop)


def product_library(job: TrainJob, device: torch.device) -> str:
    """Of the products whose rate is the peak; bfloat16 ones are oneDNN's on every CPU."""
    if device.type == "cuda":
        return "cublas"
    return "onednn" if job.train.precision == "bf16" else matmul_library()


if __name__ == "__main__":
    run_process(compete)
