"""The worker of `make verify` over a partition with a mistake: gradients of experts are scaled by ep."""

from pipeline.parallel import partition
from pipeline.parallel.process import run_process
from pipeline.verify.__main__ import work

right = partition.partition


def wrong(model, mesh):
    right(model, mesh)
    experts = partition.expert_parameters(model)
    for name, parameter in model.named_parameters():
        if name in experts:
            parameter.register_hook(lambda gradient: gradient * mesh.size("expert"))


if __name__ == "__main__":
    partition.partition = wrong
    run_process(work)
