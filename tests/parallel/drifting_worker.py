"""The worker of training whose last process has noise in the gradients of its norms, from the second step on."""

import os

from pipeline.jobs.process import run_process
from pipeline.train import trainer
from pipeline.train.__main__ import train

NOISE = 1e-3
last = os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)
build_engine = trainer.build_engine


def drifting(job, model, mesh, guard):
    engine = build_engine(job, model, mesh, guard)
    for name, parameter in model.named_parameters():
        if last and "norm" in name:
            parameter.register_hook(lambda gradient: gradient * (1 + NOISE) if engine.updates else gradient)
    return engine


if __name__ == "__main__":
    trainer.build_engine = drifting
    run_process(train)
