"""The place and device of one process."""

import os
from dataclasses import dataclass

import torch

from pipeline.parallel.config import RuntimeConfig
from pipeline.parallel.matmul import choose_matmul


@dataclass(frozen=True, kw_only=True)
class Place:
    """This process among those of its job, as RANK, WORLD_SIZE and LOCAL_RANK say, and its device.

    on_host: how many of them are on this host.
    """

    rank: int
    world: int
    on_host: int
    device: torch.device

    @classmethod
    def take(cls, runtime: RuntimeConfig) -> "Place":
        """Read the environment, set the number of threads, pick the device, and on a CPU the fastest exact matmul."""
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(runtime.threads)
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        device = pick_device(runtime.device, local_rank=int(os.environ["LOCAL_RANK"]), local_processes=local)
        if device.type == "cpu":
            choose_matmul()
        return cls(rank=rank, world=world, on_host=local, device=device)


def pick_device(asked: str, *, local_rank: int, local_processes: int) -> torch.device:
    """cpu, or this process's CUDA device; `auto` takes CUDA where every process of this machine gets its own device.

    To be called before DeepSpeed is imported: it decides at import what it runs on, and is told here.
    """
    if asked == "cuda":
        check_cuda(local_processes)
    device = torch.device("cpu")
    if asked != "cpu" and local_processes <= _cuda_devices():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    os.environ["DS_ACCELERATOR"] = device.type
    return device


def check_cuda(local_processes: int) -> None:
    """Refuse more processes than this machine has CUDA devices."""
    found = _cuda_devices()
    if local_processes > found:
        raise ValueError(
            f"runtime.device=cuda with {local_processes} processes on this machine, where torch finds {found} CUDA "
            "devices; set runtime.processes and runtime.ep to fit, or runtime.device to cpu or auto"
        )


def _cuda_devices() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
