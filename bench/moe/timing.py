"""Interleaved timing: all variants take turns, so that a slow moment of the machine affects all of them."""

import gc
import time
from collections.abc import Mapping

import torch

from bench.moe.case import Case

LONG = 4.0  # seconds; a slow variant whose first run takes longer gets no second run


def once(case: Case) -> float:
    """Return the milliseconds of one forward and backward. Gradients are dropped before, outside the measured time.

    On a CPU with one thread this is processor time, with page faults, so other programs do not add to it. With more
    threads it is wall time, and on CUDA the time between two events.
    """
    case.clear()
    if case.place.device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        start.record()
        case.run()
        end.record()
        end.synchronize()
        elapsed = float(start.elapsed_time(end))
    else:
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        begin = clock()
        case.run()
        elapsed = (clock() - begin) * 1e3
    case.clear()
    return elapsed


def interleave(
    cases: Mapping[str, Case], warm: Mapping[str, float], *, seconds: float, rounds: int, slow: frozenset[str]
) -> dict[str, list[float]]:
    """Return the milliseconds of every run, by variant.

    warm: milliseconds of each variant's first run, which counts only if there is no other.
    seconds: budget after which no more round starts, except the second.
    rounds: the most rounds.
    slow: variants that run in the first round only, or not at all if their first run took more than `LONG`.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    deadline = time.perf_counter() + seconds
    for number in range(rounds):
        if number >= 2 and time.perf_counter() > deadline:
            break
        gc.collect()
        for name, case in cases.items():
            if name not in slow or (number < 1 and warm[name] < LONG * 1e3):
                times[name].append(once(case))
    return {name: runs or [warm[name]] for name, runs in times.items()}
