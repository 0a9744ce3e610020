"""One process of our own training: `python -m bench.quality.ours job.json` with RANK and WORLD_SIZE set.

It runs `pipeline.train` with a trainer that stops at the marks of a clock.
"""

import shutil
from pathlib import Path
from typing import Any

from bench.quality.clock import Clock
from pipeline.jobs.process import StopRequest, run_process
from pipeline.train import retention, trainer
from pipeline.train.__main__ import train
from pipeline.train.config import CheckpointConfig
from pipeline.train.records import Records


def compete(values: dict[str, Any], stop: StopRequest) -> None:
    class Contender(trainer.Trainer):
        """A trainer with a clock."""

        clock: Clock | None = None

        def _step(self, records: Records | None) -> bool:
            if self.clock is None:
                self.clock = Clock(
                    Path(values["directory"]),
                    values["minutes"],
                    rank=self.rank,
                    save=self._save,
                    tokens=lambda: self.progress.target_tokens * (self.rank == 0),  # every process has the whole count
                    parameters=self.parameters.total,
                )
            self.clock.step()
            return super()._step(records)

        def _save(self, path: Path) -> None:
            self.checkpoints.save(self.engine, self.window.tensors(), self._state(None), None, wait=True)
            if self.rank == 0:
                root = path / trainer.CHECKPOINTS
                name = retention.saved(self.checkpoints.root)[-1].name
                shutil.copytree(self.checkpoints.root / name, root / name)
                retention.apply(root, CheckpointConfig())

    trainer.Trainer = Contender  # type: ignore[misc]
    train(values["job"], stop)


if __name__ == "__main__":
    run_process(compete)
