"""Extra memory of one forward and backward: what it takes beyond weights and their gradients.

Counted from torch.profiler's record of every allocation and release, not from the resident set: that depends on what
malloc kept from before and on page faults, this is exact and the same in every run. It does not see what a matmul
library keeps for itself. Weights, the input and the gradient of the output exist before and are not counted.
"""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bench.moe.case import Case


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Peaks of live allocations in bytes.

    fresh: gradients of weights do not exist at first, and the buffers that become them are never counted.
    accumulating: they exist and are added to; a gradient is then extra until it has been added.
    """

    fresh: int
    accumulating: int


def extra_memory(case: Case) -> Extra:
    """Of a case that has run before; drops its gradients."""
    case.clear()
    gc.collect()
    changes = _changes(case)
    gradients = [weight.grad for weight in case.weights if weight.grad is not None]
    fresh = peak_without({gradient.untyped_storage().data_ptr() for gradient in gradients}, changes)
    for leaf in case.inputs:
        leaf.grad = None
    accumulating = _cuda_peak(case) if case.place.device == "cuda" else peak_without(set(), _changes(case))
    case.clear()
    return Extra(fresh=fresh, accumulating=accumulating)


def _cuda_peak(case: Case) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    case.run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _changes(case: Case) -> list[tuple[int, int]]:
    """(address, bytes; negative when released) of one run, in order of time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        case.run()
    tree = recorded.profiler.kineto_results.experimental_event_tree()
    return [(address, size) for _, address, size in sorted(_allocations(tree, case.place.device))]


def peak_without(kept: set[int], changes: list[tuple[int, int]]) -> int:
    """Largest sum of live sizes. kept: addresses whose last allocation does not count."""
    last = {address: index for index, (address, size) in enumerate(changes) if size > 0}
    live = peak = 0
    for index, (address, size) in enumerate(changes):
        if address not in kept or index < last[address]:
            live += size
            peak = max(peak, live)
    return peak


def _allocations(events: list[Any], device: str) -> Iterator[tuple[int, int, int]]:
    """(time, address, bytes) of all allocations and releases below these events."""
    for event in events:
        if event.tag.name == "Allocation" and event.extra_fields.device.type == device:
            yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size
        yield from _allocations(event.children, device)
