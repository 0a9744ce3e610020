"""GShard's three words for how a tensor is cut over devices (arXiv:2006.16668, section 3.2 and A.3), on torch's
DeviceMesh and DTensor.

    name_letters(model)
    with mesh.devices:
        wi = split(layer.wi_MH, "H", "model")
        x = split(x_GSM, "G", "data", letters="GSM")
        h = torch.einsum("gsm,mh->gsh", x, wi)

A tensor is what one large device would hold, the same on every process; what comes back is a DTensor, whose
`to_local()` is this process's part, and `full_tensor()` the whole. What torch computes of them is what one device
would, with the collectives that this takes. Differentiable: the gradient of the tensor is the whole one, on every
process. Letters name dimensions, as in `wi_EMH`. GShard pads a dimension that does not divide; here that is an error.

mesh: by default the one of the surrounding `with mesh.devices:`, or of a tensor that is annotated already.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

LETTERS = "letters"  # attribute of a tensor whose dimensions have names


def name_letters(model: nn.Module) -> None:
    """Tag every parameter with the letters at the end of its name, and those of norms with M, so that `split` knows
    them."""
    for name, parameter in model.named_parameters():
        leaf = name.rpartition(".")[2]
        setattr(parameter, LETTERS, "M" if leaf in ("weight", "bias") else leaf.rpartition("_")[2])


def replicate(tensor: Tensor, *, mesh: DeviceMesh | None = None) -> DTensor:
    """All of it on every process. An all-gather over axes that cut it."""
    distributed = _distributed(tensor, mesh)
    whole = distributed.redistribute(placements=[Replicate()] * distributed.device_mesh.ndim)
    return _tagged(whole, getattr(tensor, LETTERS, None))


def split(
    tensor: Tensor, letter: str, axis: str, *, letters: str | None = None, mesh: DeviceMesh | None = None
) -> DTensor:
    """Cut the dimension `letter` over the axis, other axes as they are.

    letters: of all dimensions; by default those of `name_letters` or of an earlier `split`. Of a tensor that is whole
    over the axis a slice, without communication; of one that is cut on another letter there, the hand-over, an
    all-to-all (on a CPU torch gathers and slices instead). Raises ValueError where the letter or axis does not exist
    or sizes do not divide.
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
    """Cut several dimensions at once and say which process has which part.

    assignment: ranks, an array with one dimension for each of the tensor's: into as many parts is that one cut, and the
    entry is who has the part. Every process of the world stands in it once; it becomes a mesh of its own, whose process
    groups are made: a collective of the world. Raises ValueError where a process is missing, or sizes do not divide.
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
    """A mesh of ranks in any order. DeviceMesh's own groups are sorted by rank, so that what they gather would come in
    another order than it was cut in (contract-tested)."""
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


def _check(what: str, size: int, parts: int) -> None:
    if size % parts:
        lower = size // parts * parts
        choices = " or ".join(str(n) for n in (lower, lower + parts) if n)
        raise ValueError(f"{what} has size {size}, which is not divisible by {parts} processes; choose {choices}")
