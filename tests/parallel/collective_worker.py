"""A process that does nothing but all-reduce, until it is told to stop.

job.json has timeout, heartbeat, and `fails`, the rank that ends by an error of its own after a while (-1: none).
"""

import os
import sys
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.parallel.mesh import start_processes_group
from pipeline.parallel.process import run_process
from pipeline.stage import Stopped


def work(values, stop):
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    start_processes_group(
        init_method=os.environ["BABELSHARD_RENDEZVOUS"],
        rank=rank,
        world=int(os.environ["WORLD_SIZE"]),
        device=torch.device("cpu"),
        timeout=values["timeout"],
        met=partial(stop.watch, limit=values["heartbeat"]),
    )
    rounds = Path(sys.argv[1]).with_name(f"rank-{rank}.rounds")
    for number in range(10**9):
        asked = torch.tensor(float(bool(stop)))
        dist.all_reduce(asked)
        if asked:
            raise Stopped("collectives")
        if number % 10 == 0:
            rounds.write_text(str(number))
        if number == 50 and rank == values["fails"]:
            raise ValueError("an error of its own")
        time.sleep(0.01)


if __name__ == "__main__":
    run_process(work)
