"""Extra memory of one forward and backward, beyond weights and their gradients.

The memory is counted from torch.profiler's record of every allocation and release. This is exact and the same in every
run, while the resident set depends on page faults and on blocks that malloc kept. Memory that a matmul library keeps
for itself is not counted, and neither are weights, input and gradient of the output, which exist before.
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

    fresh: the peak if gradients of weights do not exist before; the buffers that become gradients are not counted.
    accumulating: the peak if gradients exist before; a new gradient then counts until it has been added.
    """

    fresh: int
    accumulating: int


def extra_memory(case: Case) -> Extra:
    """Measure a case that has run before. Its gradients are dropped."""
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
    """Return (address, bytes) of every allocation in one run, in order of time. A release has negative bytes."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        case.run()
    tree = recorded.profiler.kineto_results.experimental_event_tree()
    return [(address, size) for _, address, size in sorted(_allocations(tree, case.place.device))]


def peak_without(kept: set[int], changes: list[tuple[int, int]]) -> int:
    """Return the largest sum of live sizes. kept: addresses whose last allocation does not count."""
    last = {address: index for index, (address, size) in enumerate(changes) if size > 0}
    live = peak = 0
    for index, (address, size) in enumerate(changes):
        if address not in kept or index < last[address]:
            live += size
            peak = max(peak, live)
    return peak


def _allocations(events: list[Any], device: str) -> Iterator[tuple[int, int, int]]:
    """Yield (time, address, bytes) of all allocations and releases below these events."""
    for event in events:
        if event.tag.name == "Allocation" and event.extra_fields.device.type == device:
            yield event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size
        yield from _allocations(event.children, device)
