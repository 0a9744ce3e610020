"""GShard's three words for how a tensor is cut over devices (arXiv:2006.16668, section 3.2 and A.3), on torch's
DeviceMesh and DTensor.

A tensor is what one large device would hold, the same on every process; what comes back is a DTensor, whose
`to_local()` is this process's part. Letters name dimensions, as in `wi_EMH`. Differentiable. GShard pads a dimension
that does not divide; here that is an error.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard


def replicate(tensor: Tensor, *, mesh: DeviceMesh) -> DTensor:
    """All of it on every process. An all-gather over axes that cut it."""
    return _distributed(tensor, mesh).redistribute(placements=[Replicate()] * mesh.ndim)


def split(tensor: Tensor, letter: str, axis: str, *, letters: str, mesh: DeviceMesh) -> DTensor:
    """Cut the dimension `letter` over the axis, other axes as they are.

    letters: of all dimensions. Of a tensor that is whole over the axis a slice, without communication; of one that is
    cut on another letter there, the hand-over, an all-to-all. Raises ValueError where the letter or axis does not exist
    or sizes do not divide.
    """
    distributed = _distributed(tensor, mesh)
    names = mesh.mesh_dim_names or ()
    if len(letters) != tensor.dim():
        raise ValueError(f"letters={letters!r} do not name the {tensor.dim()} dimensions of {tuple(tensor.shape)}")
    if letter not in letters:
        raise ValueError(f"split: there is no {letter} in {letters}")
    if axis not in names:
        raise ValueError(f"split: there is no axis {axis}; the mesh has {', '.join(names)}")
    dim, index = letters.index(letter), names.index(axis)
    placements: list[Placement] = list(distributed.placements)
    placements[index] = Shard(dim)
    parts = 1
    for placement, size in zip(placements, mesh.shape, strict=True):
        parts *= size if placement.is_shard(dim) else 1
    _check(f"{letter} of {letters}", tensor.shape[dim], parts)
    return distributed.redistribute(placements=placements)


def shard(tensor: Tensor, assignment: Sequence[object] | Tensor) -> DTensor:
    """Cut several dimensions at once and say which process has which part.

    assignment: ranks, an array with one dimension for each of the tensor's: into as many parts is that one cut, and the
    entry is who has the part. Every process of the world stands in it once. Raises ValueError where one does not, or
    sizes do not divide.
    """
    ranks = torch.as_tensor(assignment)
    if isinstance(tensor, DTensor):
        raise ValueError("shard wants the whole tensor; replicate it first")
    if ranks.dim() != tensor.dim():
        raise ValueError(f"an assignment of {ranks.dim()} dimensions cannot cut a tensor of {tensor.dim()}")
    if sorted(ranks.flatten().tolist()) != list(range(dist.get_world_size())):
        raise ValueError(f"an assignment names each of {dist.get_world_size()} processes once, not {ranks.tolist()}")
    for dim, parts in enumerate(ranks.shape):
        _check(f"dimension {dim}", tensor.shape[dim], parts)
    mesh = DeviceMesh(tensor.device.type, ranks)
    return _distributed(tensor, mesh).redistribute(placements=[Shard(dim) for dim in range(tensor.dim())])


def _distributed(tensor: Tensor, mesh: DeviceMesh) -> DTensor:
    if isinstance(tensor, DTensor):
        return tensor
    return DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _check(what: str, size: int, parts: int) -> None:
    if size % parts:
        lower = size // parts * parts
        choices = " or ".join(str(n) for n in (lower, lower + parts) if n)
        raise ValueError(f"{what} has size {size}, which is not divisible by {parts} processes; choose {choices}")
