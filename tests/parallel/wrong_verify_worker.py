"""The worker of `make verify`, with a mistake in each of several topologies. Other topologies are right."""

import pytest
import torch
import torch.distributed as dist

from pipeline.engine import gradient_norm
from pipeline.engine.deepspeed import Engine
from pipeline.jobs.process import run_process
from pipeline.parallel import partition
from pipeline.verify import runs
from pipeline.verify.__main__ import work

right = runs.EngineRun


class WrongRun(right):
    def __init__(self, case, mesh, optimizer, decisions=None):
        self.case = case
        with pytest.MonkeyPatch.context() as patch:
            if case.layout == "model" and case.zero_stage == 1:  # gradients of inputs are not summed
                patch.setattr(partition, "enter", lambda whole, group: whole)
            super().__init__(case, mesh, optimizer, decisions)
        parameters = dict(self.engine.model.named_parameters())
        if case.layout == "gshard" and case.ep == 2 and case.zero_stage == 1:
            for name in partition.expert_parameters(self.engine.model):
                parameters[name].register_hook(lambda gradient: gradient * mesh.size("expert"))
        if case.layout == "summed" and dist.get_rank() == 1:  # one of two copies of a gradient
            parameters["encoder.norm.weight"].register_hook(lambda gradient: gradient * 1.5)

    def steps(self, first, last, stop, checkpoints=None):
        if self.case.layout == "model" and self.case.zero_stage == 2:
            for norm in norms:
                norm._num_holders = [torch.ones_like(numbers) for numbers in norm._num_holders]
        return super().steps(first, last, stop, checkpoints)

    def load(self, directory):
        with pytest.MonkeyPatch.context() as patch:
            if self.case.layout == "gshard" and self.case.ep == 1:  # the optimizer state is not loaded
                patch.setattr(Engine, "load", weights_alone(Engine.load))
            super().load(directory)


def weights_alone(load):
    def wrong(engine, state):
        load(engine, {name: t if name.startswith("model.") else t * 0 for name, t in state.items()})

    return wrong


norms = []
make = gradient_norm.GradientNorm.__init__


def noted(norm, *args, **kwargs):
    make(norm, *args, **kwargs)
    norms[:] = [norm]


if __name__ == "__main__":
    gradient_norm.GradientNorm.__init__ = noted
    runs.EngineRun = WrongRun
    run_process(work)
