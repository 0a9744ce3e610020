"""A process that reduces all the time, while process 0 fills the disk of its job file.

job.json has heartbeat, the limit of the heartbeat; seconds, after which it ends; and fails, the rank that then ends by
an error (-1: none).
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.jobs.process import run_process
from pipeline.jobs.rendezvous import join_job

BLOCK = 4096


def fill(file):
    """Write until the disk is full."""
    with suppress(OSError), file.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"0" * BLOCK)


def work(values, stop):
    rank, address = int(os.environ["RANK"]), os.environ["BABELSHARD_RENDEZVOUS"]
    torch.set_num_threads(1)
    worlds = []

    def met(world):
        worlds.append(world)
        stop.watch(world, limit=values["heartbeat"])

    join_job(device=torch.device("cpu"), timeout=60, met=met)
    dist.barrier()
    if rank == 0:
        fill(Path(sys.argv[1]).with_name("filler"))
        while Path(address.removeprefix("file://")).stat().st_size % BLOCK < BLOCK - 300:
            worlds[0].store.set("padding", "")  # fill the last block of the store, if it is on that disk
    dist.barrier()
    end = torch.tensor(time.time() + values["seconds"], dtype=torch.float64)
    dist.broadcast(end, src=0)
    more = torch.ones(1)
    while more:
        more = torch.tensor(float(time.time() < end.item()))
        dist.all_reduce(more)
        time.sleep(0.01)
    if rank == values["fails"]:
        raise ValueError("an error of its own")
    dist.barrier()


if __name__ == "__main__":
    run_process(work)
