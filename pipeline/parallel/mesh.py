"""The device mesh and the view of it that DeepSpeed calls an mpu."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pipeline.parallel.layout import AXES, Layout
from pipeline.parallel.rendezvous import World

ALONE = "alone"  # one more axis, of one process


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """One DeviceMesh (data, expert, model), the layout that is cut over it, and the groups that are asked of it."""

    devices: DeviceMesh
    layout: Layout
    device: torch.device
    _groups: dict[tuple[str, ...], dist.ProcessGroup] = field(default_factory=dict, init=False)

    @classmethod
    def build(cls, layout: Layout, device: torch.device) -> "Mesh":
        """Over the initialised world; its size must be the layout's. A collective."""
        if layout.world != dist.get_world_size():
            raise ValueError(f"a mesh of {dict(layout.sizes)} is not a world of {dist.get_world_size()} processes")
        shape = (*(layout.sizes[axis] for axis in AXES), 1)
        devices = init_device_mesh(device.type, shape, mesh_dim_names=(*AXES, ALONE))
        mesh = cls(devices=devices, layout=layout, device=device)
        for axes in (layout.batch_axes, layout.copy_axes, layout.expert_copies):  # made now: making one is a collective
            mesh.group(*axes)
        return mesh

    def size(self, axis: str) -> int:
        return self.layout.sizes[axis]

    def rank(self, axis: str) -> int:
        return self.devices.get_local_rank(axis)

    def submesh(self, *axes: str) -> DeviceMesh:
        """Of some axes, in the order of `AXES`."""
        return self.devices[axes]

    def group(self, *axes: str) -> dist.ProcessGroup:
        """Processes that differ in these axes alone; without axes, of this process. The first time, a collective.

        The same processes are the same group: of what one bucket holds, the engine reduces all that has one together.
        """
        wanted = tuple(axis for axis in AXES if axis in axes and self.size(axis) > 1)
        if wanted not in self._groups:
            devices = self.devices[wanted]._flatten("_".join(wanted)) if wanted[1:] else self.devices
            self._groups[wanted] = devices.get_group(None if wanted[1:] else wanted[0] if wanted else ALONE)
        return self._groups[wanted]

    @property
    def expert_axis(self) -> tuple[str, ...]:
        """That cuts experts, if any does."""
        axis = self.layout.axis("E")
        return () if axis is None else (axis,)

    @property
    def expert_group_name(self) -> str:
        """How DeepSpeed calls the processes of `expert_axis` and `expert_copies`; another layout has another name."""
        sizes = "x".join(str(size) for size in self.layout.sizes.values())
        names = "_".join((*self.expert_axis, "of", *self.layout.batch_axes))
        return f"ep_size_{self.layout.parts(self.expert_axis)}_{names}_{sizes}"

    @property
    def batch_rank(self) -> int:
        """This process's place among the `batch_size` that share out the groups of a step."""
        return dist.get_rank(self.group(*self.layout.batch_axes))

    @property
    def batch_size(self) -> int:
        return self.layout.parts(self.layout.batch_axes)

    # What DeepSpeed asks of an mpu: its data parallel processes are those with other groups, its model parallel ones
    # those with the same.
    def get_data_parallel_group(self) -> dist.ProcessGroup:
        return self.group(*self.layout.batch_axes)

    def get_data_parallel_world_size(self) -> int:
        return self.batch_size

    def get_data_parallel_rank(self) -> int:
        return self.batch_rank

    def get_model_parallel_group(self) -> dist.ProcessGroup:
        return self.group(*self.layout.copy_axes)

    def get_model_parallel_world_size(self) -> int:
        return self.layout.parts(self.layout.copy_axes)

    def get_model_parallel_rank(self) -> int:
        return dist.get_rank(self.get_model_parallel_group())


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
