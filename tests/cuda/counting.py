"""Counts of what operations on a GPU cost: kernels, casts between dtypes, waits of the host, and bytes moved.

Each operation that computes counts as one kernel; a few, such as a sort, launch several. Bytes are estimated from the
shapes: what an operation reads and writes if nothing stays in a cache.
"""

import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

PIPELINE = str(Path(__file__).resolve().parents[2] / "pipeline") + "/"

TRACED = re.compile(rf'\s*File "{re.escape(PIPELINE)}(.*)", line \d+, in (\S+)')

WATCHING = "/model/decisions.py"  # calls the operations that others ask for

# The host waits for the device, because it needs a value or the size of a result.
WAITING = {
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::bincount",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::masked_select",
    "aten::repeat_interleave",  # unless it is told how much comes out
    "aten::equal",
    "aten::is_nonzero",
}
NO_KERNEL = {
    "aten::_local_scalar_dense",
    "aten::_unsafe_view",
    "aten::alias",
    "aten::detach",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::lift_fresh",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::record_stream",
    "aten::_reshape_alias",
    "aten::set_data",
}
PINNED = "is_pinned_for_impostor"  # attribute of a tensor whose memory CUDA can read while the host goes on
# They read as many elements of their first tensor, a table, as they write.
LOOK_UPS = {"aten::embedding", "aten::gather", "aten::index", "aten::index_select"}


@dataclass(kw_only=True)
class Counts:
    """The cost of operations, by the place in `pipeline` that called them, such as `model/loss.py:part`.

    A gradient counts for the place of its forward pass if torch's anomaly mode is on, else for `backward`.

    waits: by place and reason. A copy between host and device waits, unless it is non-blocking.
    refused: operations for which torch has no deterministic kernel on CUDA.
    """

    kernels: Counter[str] = field(default_factory=Counter)
    casts: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    refused: set[str] = field(default_factory=set)

    def add(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Count one operation. args, kwargs: with tensors that have devices; result: of any device."""
        schema = func._schema
        name = schema.name
        waits = reason_to_wait(func, args, kwargs)
        if waits:
            self.wait(waits)
        if is_refused(func, args):
            self.refused.add(name)
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        if views or name in NO_KERNEL:
            return
        place = calling_place()
        self.kernels[place] += 1
        self.operations[name] += 1
        self.bytes[place] += bytes_moved(name, args, kwargs, result)
        if name in ("aten::_to_copy", "aten::copy_"):
            source, converted = (args[0], result) if name == "aten::_to_copy" else (args[1], args[0])
            self.casts[place] += source.dtype != converted.dtype

    def wait(self, reason: str) -> None:
        """Count a wait of the host."""
        self.waits[calling_place(), reason] += 1

    def by_file(self) -> dict[str, tuple[int, int, int]]:
        """Return kernels, casts and bytes of each file."""
        sums: dict[str, list[int]] = {}
        for column, counter in enumerate((self.kernels, self.casts, self.bytes)):
            for place, count in counter.items():
                sums.setdefault(place.partition(":")[0], [0, 0, 0])[column] += count
        return {file: (kernels, casts, moved) for file, (kernels, casts, moved) in sorted(sums.items())}


def reason_to_wait(func: Any, args: Any, kwargs: Any) -> str:
    """Return why the host waits for this operation; empty if it does not."""
    name = func._schema.name
    if name in WAITING and kwargs.get("output_size") is None:
        return name.removeprefix("aten::")
    if name in ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"):
        indices = [index for index in args[1] if index is not None]
        if any(index.device.type == "cpu" for index in indices):
            return "copy to the device"
        filled = name != "aten::index" and args[2].numel() == 1 and not args[3:]  # becomes a masked_fill
        return "nonzero" if not filled and any(i.dtype == torch.bool for i in indices) else ""
    if name in ("aten::_to_copy", "aten::copy_"):
        blocking = not (kwargs.get("non_blocking") or (name == "aten::copy_" and True in args[2:3]))
        if name == "aten::_to_copy":
            copied, target = args[0], torch.device(kwargs.get("device") or args[0].device)
        else:
            copied, target = args[1], args[0].device
        source = copied.device
        if source.type == "cpu" and not hasattr(copied, PINNED):
            blocking = True
        types = source.type, target.type
        if blocking and types[0] != types[1] and (name == "aten::_to_copy" or args[1].dim()):
            return f"copy to the {'host' if types[1] == 'cpu' else 'device'}"
    return ""


def is_refused(func: Any, args: Any) -> bool:
    """Tell if torch has no deterministic kernel on CUDA for this operation.

    The list is that of torch.use_deterministic_algorithms, without images and maxima of bags.
    """
    name = func.overloadpacket.__name__
    floating = bool(args) and isinstance(args[0], Tensor) and args[0].is_floating_point()
    weighted = name == "bincount" and len(args) > 1 and args[1] is not None
    product = name.startswith("scatter_reduce") and "prod" in args
    listed = name.startswith(("nll_loss", "ctc_loss", "put_", "histc", "median", "kthvalue"))
    return listed or weighted or product or (name.startswith("cumsum") and floating)


def bytes_moved(name: str, args: Any, kwargs: Any, result: Any) -> int:
    """Estimate the bytes that an operation reads and writes, from its tensors' sizes."""
    read = {id(t): t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
    written = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
    total = sum(distinct_bytes(t) for t in (*read.values(), *written))
    if name in LOOK_UPS and isinstance(args[0], Tensor):
        total += sum(t.nbytes for t in written) - distinct_bytes(args[0])
    if name == "aten::_embedding_bag":
        total += args[1].numel() * args[0].shape[1] * args[0].element_size() - distinct_bytes(args[0])
    return total


def distinct_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements, those that expansion repeats once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else min(size, 1)
    return elements * tensor.element_size()


def calling_place() -> str:
    """Return the innermost function of `pipeline` that is running, or whose gradient is, with its file."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(PIPELINE) and not file.endswith(WATCHING):
            return f"{file.removeprefix(PIPELINE)}:{frame.f_code.co_name}"
        frame = frame.f_back
    node = torch._C._current_autograd_node()
    for entry in reversed([] if node is None else node.metadata.get("traceback_", [])):
        if match := TRACED.match(entry):
            return f"{match[1]}:{match[2]}"
    return "backward"
