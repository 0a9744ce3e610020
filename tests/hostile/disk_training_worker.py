"""A process of a training job. Its disk is full from the second step until the save of the third has failed."""

from concurrent.futures import wait
from pathlib import Path

from pipeline.jobs.process import run_process
from pipeline.train.__main__ import train
from tests.hostile.disk_worker import fill


def work(values, stop):
    from pipeline.train.trainer import Trainer

    step, filler = Trainer._step, Path(values["out"]) / "filler"

    def on_a_full_disk(trainer, *arguments):
        if trainer.rank == 0 and trainer.progress.step == 1:
            fill(filler)
        if trainer.rank == 0 and trainer.progress.step == 3:
            wait([trainer.checkpoints._saving._running])
            filler.unlink()
        return step(trainer, *arguments)

    Trainer._step = on_a_full_disk
    train(values, stop)


if __name__ == "__main__":
    run_process(work)
