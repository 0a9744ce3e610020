"""The rank and the device of one process."""

import os
from dataclasses import dataclass

import torch

from pipeline.jobs.matmul import choose_matmul
from pipeline.jobs.runtime import RuntimeConfig


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
    def take(cls, runtime: RuntimeConfig) -> "Place":
        """Read the environment, set the number of threads, and choose the device and, on a CPU, the matmul library."""
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.set_num_threads(runtime.threads)
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        device = pick_device(runtime.device, local_rank=int(os.environ["LOCAL_RANK"]), local_processes=local)
        if device.type == "cpu":
            choose_matmul()
        return cls(rank=rank, world=world, on_host=local, device=device)


def pick_device(setting: str, *, local_rank: int, local_processes: int) -> torch.device:
    """Return the CPU or the CUDA device of this process. Call this before the import of DeepSpeed, which reads it.

    setting: cpu, cuda, or auto, which takes CUDA if every process of this machine gets a device of its own.
    """
    if setting == "cuda":
        check_cuda(local_processes)
    device = torch.device("cpu")
    if setting != "cpu" and local_processes <= _cuda_devices():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    os.environ["DS_ACCELERATOR"] = device.type
    return device


def check_cuda(local_processes: int) -> None:
    """Raise ValueError if this machine has fewer CUDA devices than processes."""
    devices = _cuda_devices()
    if local_processes > devices:
        raise ValueError(
            f"runtime.device=cuda with {local_processes} processes on this machine, where torch finds {devices} CUDA "
            "devices; set runtime.processes and runtime.ep to fit, or runtime.device to cpu or auto"
        )


def _cuda_devices() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
