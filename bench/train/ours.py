"""One process of our own contender: `python -m bench.train.ours job.json` with RANK and WORLD_SIZE set.

It runs `pipeline.train` with a trainer that takes turns, and with a stopwatch around the functions that it calls. It
ends with the last turn.
"""

from pathlib import Path
from typing import Any

import torch

from bench.train.stopwatch import Stopwatch, observe
from bench.train.turns import Turns
from pipeline.jobs.matmul import matmul_library
from pipeline.jobs.process import StopRequest, run_process
from pipeline.train import trainer
from pipeline.train.__main__ import train
from pipeline.train.job import TrainJob
from pipeline.train.records import Records


def compete(values: dict[str, Any], stop: StopRequest) -> None:
    watch = Stopwatch()
    observe(watch)

    class Contender(trainer.Trainer):
        """A trainer that waits for its turn before each step."""

        turns: Turns | None = None

        def _step(self, records: Records | None) -> bool:
            if self.turns is None:
                folder = Path(values["directory"])
                self.turns = Turns(folder, values["rounds"], rank=self.rank, sums=self._sums, before=self._measure)
            self.turns.step()
            return super()._step(records)

        def _sums(self) -> dict[str, float]:
            p, first = self.progress, self.rank == 0  # every process has the counts of the whole step
            counts = {"target_tokens": p.target_tokens, "useful_flops": p.useful_flops}
            counts |= {"nominal_flops": p.nominal_flops, "executed_flops": p.executed_flops}
            return {**{name: value * first for name, value in counts.items()}, **watch.seconds}

        def _measure(self) -> dict[str, Any]:
            """Measure the matmul peak before a round. `peak` is the highest rate so far."""
            self.peak.measure()
            library = product_library(self.job, self.device)
            return {"parameters": self.parameters.total, "peak": self.peak.flops, "library": library}

    trainer.Trainer = Contender  # type: ignore[misc]
    train(values["job"], stop)


def product_library(job: TrainJob, device: torch.device) -> str:
    """Return the library of the products whose rate is the peak. oneDNN does bfloat16 products on every CPU."""
    if device.type == "cuda":
        return "cublas"
    return "onednn" if job.train.precision == "bf16" else matmul_library()


if __name__ == "__main__":
    run_process(compete)
