"""The worker of training that notes which bytes each process keeps for every save, in `log/staged-<rank>.jsonl`."""

import json
import os
from pathlib import Path

from torch.distributed.tensor import DTensor

from pipeline.engine.checkpoint import background_save
from pipeline.jobs.process import run_process
from pipeline.train.__main__ import train

save = background_save.save


def noting(directory, tensors, state, **settings):
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors.values()]
    staged = {"checkpoint": directory.name, "tensors": len(local), "bytes": sum(tensor.nbytes for tensor in local)}
    with (Path(directory).parents[1] / "log" / f"staged-{os.environ['RANK']}.jsonl").open("a") as stream:
        stream.write(json.dumps(staged) + "\n")
    save(directory, tensors, state, **settings)


if __name__ == "__main__":
    background_save.save = noting
    run_process(train)
