"""The rank and the device of one process."""

import os
from dataclasses import dataclass

import torch

from pipeline.jobs.deterministic import choose_deterministic
from pipeline.jobs.matmul import choose_matmul
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.jobs.visible_devices import check_devices, device_type


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of this process in its job, from RANK, WORLD_SIZE and LOCAL_RANK, and its device.

    on_host: number of the job's processes on this host.
    """

    rank: int
    world: int
    on_host: int
    device: torch.device

    @classmethod
    def take(cls, runtime: RuntimeConfig, *, trains: bool = False) -> "Place":
        """Read the environment, set the number of threads, and choose the device and, on a CPU, the matmul library.

        trains: whether the process trains, for `choose_deterministic`.
        """
        if runtime.deterministic:
            choose_deterministic(trains=trains)
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(runtime.threads)
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        device = pick_device(runtime.device, local_rank=int(os.environ["LOCAL_RANK"]), local_processes=local)
        if device.type == "cpu":
            choose_matmul()
        return cls(rank=rank, world=world, on_host=local, device=device)


def pick_device(setting: str, *, local_rank: int, local_processes: int) -> torch.device:
    """Return the CPU or the CUDA device of this process. Call this before the import of DeepSpeed, which reads it.

    Raises ValueError if this machine has fewer CUDA devices than processes that need one.

    setting: cpu, cuda, or auto, which is CUDA if this machine has a device.
    """
    check_devices(setting, local_processes)
    device = torch.device("cpu")
    if device_type(setting) == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    os.environ["DS_ACCELERATOR"] = device.type
    return device
