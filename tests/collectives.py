"""Count the collectives of real code, to compare them with the formulas of pipeline.plan.collectives."""

import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.parallel.mesh import Mesh
from pipeline.plan.workload import Collective

KINDS = {
    "c10d::allreduce_": "all_reduce",
    "c10d::alltoall_base_": "all_to_all",
    "c10d::_allgather_base_": "all_gather",
}
Sums = dict[tuple[str, tuple[int, ...]], tuple[int, int]]  # bytes and number, by kind and ranks


class Counted(TorchDispatchMode):
    """A context that counts collectives of several processes. A kind without a formula is an error."""

    def __init__(self) -> None:
        super().__init__()
        warnings.filterwarnings("ignore", category=FutureWarning, message=r".*torch\.distributed\..* is deprecated")
        self._bytes: defaultdict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)

    @property
    def sums(self) -> Sums:
        return {key: (sum(sizes), len(sizes)) for key, sizes in self._bytes.items()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name.startswith("c10d::"):
            values = dict(zip((a.name for a in func._schema.arguments), args, strict=False))
            ranks = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(values["process_group"])))
            if len(ranks) > 1:
                self._bytes[KINDS[name], ranks].append(_bytes(name, values))
        return func(*args, **(kwargs or {}))


def _bytes(name: str, values: dict[str, Any]) -> int:
    if name == "c10d::allreduce_":
        (tensor,) = values["tensors"]
    else:
        tensor = values["output_tensor" if name == "c10d::_allgather_base_" else "input"]
    assert isinstance(tensor, torch.Tensor)
    return tensor.numel() * tensor.element_size()


def sums_of(collectives: Iterable[Collective], mesh: Mesh) -> Sums:
    """Return the collectives of a formula in the form of `Counted.sums`."""
    sums: Sums = {}
    for collective in collectives:
        key = collective.kind, tuple(dist.get_process_group_ranks(mesh.group(*collective.axes)))
        size, count = sums.get(key, (0, 0))
        sums[key] = size + collective.bytes, count + collective.count
    return sums
