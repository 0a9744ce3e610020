"""The device mesh, with the methods that DeepSpeed expects of a model parallel unit (mpu)."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pipeline.parallel.layout import AXES, Layout

ALONE = "alone"  # an extra axis of one process, whose group is the process itself


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """A DeviceMesh (data, expert, model) with a layout, and the process groups of its axes."""

    devices: DeviceMesh
    layout: Layout
    device: torch.device
    _groups: dict[tuple[str, ...], dist.ProcessGroup] = field(default_factory=dict, init=False)

    @classmethod
    def build(cls, layout: Layout, device: torch.device) -> "Mesh":
        """Build the mesh over all processes, as many as the layout has. A collective. Raises ValueError."""
        if layout.world != dist.get_world_size():
            raise ValueError(f"a mesh of {dict(layout.sizes)} is not a world of {dist.get_world_size()} processes")
        shape = (*(layout.sizes[axis] for axis in AXES), 1)
        devices = init_device_mesh(device.type, shape, mesh_dim_names=(*AXES, ALONE))
        mesh = cls(devices=devices, layout=layout, device=device)
        for axes in (layout.batch_axes, layout.copy_axes, layout.expert_copies):  # now, because this is a collective
            mesh.group(*axes)
        return mesh

    def size(self, axis: str) -> int:
        return self.layout.sizes[axis]

    def rank(self, axis: str) -> int:
        return self.devices.get_local_rank(axis)

    def submesh(self, *axes: str) -> DeviceMesh:
        """Return the mesh of some axes, given in the order of `AXES`."""
        return self.devices[axes]

    def group(self, *axes: str) -> dist.ProcessGroup:
        """Return the group of the processes that differ in these axes alone; without axes, this process.

        The first call for some axes is a collective. Equal processes give the same group object, because the engine
        reduces together what is in one bucket and has one group.
        """
        used = tuple(axis for axis in AXES if axis in axes and self.size(axis) > 1)
        if used not in self._groups:
            devices = self.devices[used]._flatten("_".join(used)) if used[1:] else self.devices
            self._groups[used] = devices.get_group(None if used[1:] else used[0] if used else ALONE)
        return self._groups[used]

    @property
    def expert_axis(self) -> tuple[str, ...]:
        """The axis that cuts experts; empty if none does."""
        axis = self.layout.axis("E")
        return () if axis is None else (axis,)

    @property
    def expert_group_name(self) -> str:
        """DeepSpeed's name for the groups of `expert_axis` and `expert_copies`, different for each layout."""
        sizes = "x".join(str(size) for size in self.layout.sizes.values())
        names = "_".join((*self.expert_axis, "of", *self.layout.batch_axes))
        return f"ep_size_{self.layout.parts(self.expert_axis)}_{names}_{sizes}"

    @property
    def batch_rank(self) -> int:
        """The rank of this process among the `batch_size` ones that share the groups of a step."""
        return dist.get_rank(self.group(*self.layout.batch_axes))

    @property
    def batch_size(self) -> int:
        return self.layout.parts(self.layout.batch_axes)

    # The methods of an mpu. DeepSpeed's data parallel processes have different groups of a step, and its model parallel
    # processes have the same groups.
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
