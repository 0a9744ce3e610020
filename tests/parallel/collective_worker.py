"""A process that repeats an all-reduce until it is asked to stop.

job.json has timeout, heartbeat, and `fails`, the rank of a process that raises an error after a while (-1: none).
"""

import os
import sys
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.jobs.process import run_process
from pipeline.jobs.rendezvous import join_job
from pipeline.stopping import Stopped


def work(values, stop):
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    join_job(device=torch.device("cpu"), timeout=values["timeout"], met=partial(stop.watch, limit=values["heartbeat"]))
    rounds = Path(sys.argv[1]).with_name(f"rank-{rank}.rounds")
    for number in range(10**9):
        stop_requests = torch.tensor(float(bool(stop)))
        dist.all_reduce(stop_requests)
        if stop_requests:
            raise Stopped("collectives")
        if number % 10 == 0:
            rounds.write_text(str(number))
        if number == 50 and rank == values["fails"]:
            raise ValueError("an error of its own")
        time.sleep(0.01)


if __name__ == "__main__":
    run_process(work)
