"""The device mesh (data, expert, model), and the view of it that DeepSpeed calls an mpu."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pipeline.parallel.rendezvous import World

AXES = ("data", "expert", "model")


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """One DeviceMesh and the groups that are asked of it.

    replicas: all processes that hold the same dense parameters (data and expert axes flattened).
    """

    devices: DeviceMesh
    replicas: dist.ProcessGroup
    device: torch.device

    @classmethod
    def build(cls, *, expert: int, model: int = 1, device: torch.device) -> "Mesh":
        """Over the initialised world; expert, model: sizes of those axes, the data axis takes the rest."""
        world = dist.get_world_size()
        if world % (expert * model):
            raise ValueError(f"a mesh of expert={expert} x model={model} does not divide a world of {world} processes")
        devices = init_device_mesh(device.type, (world // (expert * model), expert, model), mesh_dim_names=AXES)
        replicas = devices["data", "expert"]._flatten("replicas").get_group()
        return cls(devices=devices, replicas=replicas, device=device)

    def size(self, axis: str) -> int:
        return self.devices[axis].size()

    def group(self, axis: str) -> dist.ProcessGroup:
        return self.devices.get_group(axis)

    # What DeepSpeed asks of an mpu.
    def get_data_parallel_group(self) -> dist.ProcessGroup:
        return self.replicas

    def get_data_parallel_world_size(self) -> int:
        return dist.get_world_size(self.replicas)

    def get_data_parallel_rank(self) -> int:
        return dist.get_rank(self.replicas)

    def get_model_parallel_group(self) -> dist.ProcessGroup:
        return self.group("model")

    def get_model_parallel_world_size(self) -> int:
        return self.size("model")

    def get_model_parallel_rank(self) -> int:
        return self.devices.get_local_rank("model")


def start_processes_group(
    *,
    init_method: str,
    rank: int,
    world: int,
    device: torch.device,
    timeout: int,
    met: Callable[[World], None] | None = None,
) -> None:
    """Join the world. timeout: seconds, also for all to come. met: called once all are
    there, before the first collective."""
    found = World.meet(init_method=init_method, rank=rank, size=world, timeout=timeout)
    if met is not None:
        met(found)
    connect(found, device=device, timeout=timeout)


def connect(world: World, *, device: torch.device, timeout: int) -> None:
    """The process group of those that have met: gloo on CPU, NCCL on CUDA. timeout: seconds."""
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, store=world.store, rank=world.rank, world_size=world.size, timeout=timedelta(seconds=timeout)
    )
