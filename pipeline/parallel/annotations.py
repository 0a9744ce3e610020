"""GShard's three annotations of tensors, `replicate`, `split` and `shard`, on torch's DeviceMesh and DTensor.

They say how a tensor is cut over devices (arXiv:2006.16668, sections 3.2 and A.3).

    name_letters(model)
    with mesh.devices:
        wi = split(layer.wi_MH, "H", "model")
        x = split(x_GSM, "G", "data", letters="GSM")
        h = torch.einsum("gsm,mh->gsh", x, wi)

The argument is the whole tensor, the same on every process. The result is a DTensor: `to_local()` is this process's
part, and `full_tensor()` the whole. torch computes with DTensors as one device would, and adds the collectives. The
functions are differentiable; the gradient of the argument is whole on every process. Letters name dimensions, as in
`wi_EMH`. A dimension that is not divisible by the number of parts is an error, while GShard pads it.

mesh: by default the mesh of the surrounding `with mesh.devices:`, or of a tensor that is annotated already.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

LETTERS = "letters"  # attribute of a tensor whose dimensions have names


def name_letters(model: nn.Module) -> None:
    """Tell `split` the letters of every parameter: those at the end of its name, or M for norms."""
    for name, parameter in model.named_parameters():
        leaf = name.rpartition(".")[2]
        setattr(parameter, LETTERS, "M" if leaf in ("weight", "bias") else leaf.rpartition("_")[2])


def replicate(tensor: Tensor, *, mesh: DeviceMesh | None = None) -> DTensor:
    """Put the whole tensor on every process, by an all-gather over the axes that cut it."""
    distributed = _distributed(tensor, mesh)
    whole = distributed.redistribute(placements=[Replicate()] * distributed.device_mesh.ndim)
    return _tagged(whole, getattr(tensor, LETTERS, None))


def split(
    tensor: Tensor, letter: str, axis: str, *, letters: str | None = None, mesh: DeviceMesh | None = None
) -> DTensor:
    """Cut the dimension `letter` over the axis. Other axes stay as they are.

    A tensor that is whole over the axis is sliced without communication. If the axis cuts another letter of it, an
    all-to-all exchanges the parts (on a CPU torch gathers and slices instead).

    letters: names of all dimensions; by default those of `name_letters` or of an earlier `split`.

    Raises ValueError if the letter or axis does not exist, or a size is not divisible.
    """
    distributed = _distributed(tensor, mesh)
    mesh, letters = distributed.device_mesh, _letters(tensor, letters)
    names = mesh.mesh_dim_names or ()
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
    return _tagged(distributed.redistribute(placements=placements), letters)


def shard(tensor: Tensor, assignment: Sequence[object] | Tensor) -> DTensor:
    """Cut several dimensions at once and choose the process of each part. A collective of the world.

    assignment: an array of ranks with as many dimensions as the tensor. Its shape is the number of parts of each
        dimension, and its entries are the processes of the parts. It has every process of the world once.

    Raises ValueError if a process is missing, or a size is not divisible.
    """
    ranks = torch.as_tensor(assignment)
    if isinstance(tensor, DTensor):
        raise ValueError("shard wants the whole tensor; take full_tensor() of it first")
    if ranks.dim() != tensor.dim():
        raise ValueError(f"an assignment of {ranks.dim()} dimensions cannot cut a tensor of {tensor.dim()}")
    if sorted(ranks.flatten().tolist()) != list(range(dist.get_world_size())):
        raise ValueError(f"an assignment names each of {dist.get_world_size()} processes once, not {ranks.tolist()}")
    for dim, parts in enumerate(ranks.shape):
        _check(f"dimension {dim}", tensor.shape[dim], parts)
    dims = [dim for dim, parts in enumerate(ranks.shape) if parts > 1]
    mesh = _mesh_of(ranks.reshape([ranks.shape[dim] for dim in dims] or [1]), tensor.device.type)
    placements: list[Placement] = [Shard(dim) for dim in dims]
    cut = _distributed(tensor, mesh).redistribute(placements=placements or [Replicate()])
    return _tagged(cut, getattr(tensor, LETTERS, None))


def _mesh_of(ranks: Tensor, device: str) -> DeviceMesh:
    """Return a mesh of ranks in any order.

    DeviceMesh's own groups are sorted by rank. They would gather parts in another order than that of the cut
    (contract-tested).
    """
    groups = []
    for dim in range(ranks.dim()):
        for line in ranks.movedim(dim, -1).reshape(-1, ranks.shape[dim]).tolist():
            group = dist.new_group(line) if line == sorted(line) else dist.new_group(line, sort_ranks=False)
            if dist.get_rank() in line:
                groups.append(group)
    return DeviceMesh.from_group(groups, device, ranks, mesh_dim_names=tuple(f"dim_{d}" for d in range(ranks.dim())))


def _distributed(tensor: Tensor, mesh: DeviceMesh | None) -> DTensor:
    if isinstance(tensor, DTensor):
        if mesh is not None and mesh != tensor.device_mesh:
            raise ValueError("the tensor is annotated on another mesh; take full_tensor() of it first")
        return tensor
    if mesh is None:
        if not _mesh_resources.mesh_stack:
            raise ValueError("there is no mesh: annotate inside `with mesh.devices:`, or pass mesh=mesh.devices")
        mesh = _mesh_resources.get_current_mesh()
    return DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)


def _letters(tensor: Tensor, letters: str | None) -> str:
    letters = letters or getattr(tensor, LETTERS, None)
    if letters is None:
        raise ValueError(
            f"split does not know the names of the {tensor.dim()} dimensions of {tuple(tensor.shape)}: pass "
            "letters='GSM' of an activation, or tag a model's parameters by name_letters(model)"
        )
    if len(letters) != tensor.dim():
        raise ValueError(f"letters={letters!r} do not name the {tensor.dim()} dimensions of {tuple(tensor.shape)}")
    return letters


def _tagged(tensor: DTensor, letters: str | None) -> DTensor:
    if letters is not None:
        setattr(tensor, LETTERS, letters)
    return tensor


def _check(name: str, size: int, parts: int) -> None:
    if size % parts:
        lower = size // parts * parts
        choices = " or ".join(str(n) for n in (lower, lower + parts) if n)
        raise ValueError(f"{name} has size {size}, which is not divisible by {parts} processes; choose {choices}")
