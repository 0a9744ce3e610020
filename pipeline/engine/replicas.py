"""Find replicas of state that have drifted apart, and make them equal again.

Processes that differ only on an axis that does not cut a parameter each compute its gradient and its update by
themselves. Equal inputs give equal bits where backward is deterministic. CUDA's is not, so the replicas drift apart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.parallel.mesh import Mesh

CHUNK = 1 << 20  # elements that are summed at once, 32 MB of temporary memory
# Odd multipliers of the hash function SplitMix64, as signed integers: each bit of a product depends on all lower ones.
ODD = (-7046029254386353131, -4658895280553007687, -7723592293110705685)


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One process's values of some state that other processes have too. They are written in place.

    name: of the state.
    axes: the processes that differ in these axes alone have the same values.
    values: float32; None where another process of ZeRO's group has them.
    """

    name: str
    axes: tuple[str, ...]
    values: Tensor | None


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The differences between replicas of state.

    names: the state that differed on any process.
    elements: the number of elements that were overwritten, over all processes.
    largest: the largest difference, as a share of the largest entry of the same values.
    """

    names: list[str]
    elements: int
    largest: float

    def __str__(self) -> str:
        more = f" and {len(self.names) - 3} more" if len(self.names) > 3 else ""
        return (
            f"{self.elements:,} elements of {len(self.names)} tensors ({', '.join(self.names[:3])}{more}) differed, by "
            f"up to {self.largest:.1e} of the largest entry"
        )


def repair(replicas: Sequence[Replica], mesh: Mesh) -> Drift | None:
    """Overwrite replicas that differ with those of the first process of their axes. None if all were equal.

    A collective of all processes, which give the same names and axes in the same order. Without drift nothing is
    written, and each process sends 12 bytes for each of them.
    """
    if not replicas:
        return None
    own = torch.stack([_digest(replica.values, mesh.device) for replica in replicas])
    first = own.clone()
    for axes, places in _by_axes(replicas, mesh.device):
        digests = own[places]
        dist.broadcast(digests, group=mesh.group(*axes), group_src=0)
        first[places] = digests
    differs = (own != first).int()
    dist.all_reduce(differs, op=dist.ReduceOp.MAX)
    drifted = [replica for replica, is_apart in zip(replicas, differs.tolist(), strict=True) if is_apart]
    if not drifted:
        return None
    elements = torch.zeros((), dtype=torch.int64, device=mesh.device)
    largest = torch.zeros((), dtype=torch.float64, device=mesh.device)
    for replica in drifted:
        if replica.values is not None:
            values = replica.values.clone()
            dist.broadcast(values, group=mesh.group(*replica.axes), group_src=0)
            elements += (_bits(replica.values) != _bits(values)).sum()
            difference = (replica.values.double() - values).abs().max() / values.abs().max().clamp(min=1e-30)
            largest = torch.maximum(largest, difference.nan_to_num(nan=torch.inf))
            replica.values.copy_(values)
    dist.all_reduce(elements)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return Drift(names=[replica.name for replica in drifted], elements=int(elements), largest=float(largest))


def _by_axes(replicas: Sequence[Replica], device: torch.device) -> Iterator[tuple[tuple[str, ...], Tensor]]:
    """Yield each choice of axes with the places of its replicas."""
    for axes in dict.fromkeys(replica.axes for replica in replicas):
        yield (
            axes,
            torch.tensor([place for place, replica in enumerate(replicas) if replica.axes == axes], device=device),
        )


def _bits(values: Tensor) -> Tensor:
    return values.flatten().view(torch.int32)


def _digest(values: Tensor | None, device: torch.device) -> Tensor:
    """Return an integer of 64 bits from all bits and their places, modulo 2^64. It is the same on every device.

    Each element is mixed with its place before the sum, so that small differences do not cancel.
    """
    total = torch.zeros((), dtype=torch.int64, device=device)
    if values is not None:
        bits = _bits(values)
        for start in range(0, len(bits), CHUNK):
            chunk = bits[start : start + CHUNK].long()
            mixed = (chunk ^ (torch.arange(start + 1, start + 1 + len(chunk), device=device) * ODD[0])) * ODD[1]
            total += ((mixed ^ (mixed >> 31)) * ODD[2]).sum()
    return total
