"""What a training step costs and what the machine could do: FLOPs and the matmul peak."""

import time

import torch
import torch.distributed as dist

from pipeline.batch.mixture import PairLengths
from pipeline.batch.packing import Step
from pipeline.model.flops import TRAINING_FACTOR, Forward

PEAK_SIZE = {"cpu": 1024, "cuda": 8192}
PEAK_SECONDS = 0.4


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of square matmuls, best of several, summed over all processes, which measure at the same time."""
    size = PEAK_SIZE[device.type]
    a = torch.randn(size, size, device=device).to(dtype)
    b = torch.randn(size, size, device=device).to(dtype)
    dist.barrier()
    best, end = float("inf"), time.perf_counter() + PEAK_SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        torch.mm(a, b)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    total = torch.tensor(2 * size**3 / best, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total)


def step_flops(step: Step, forward: Forward, lengths: list[PairLengths]) -> tuple[float, float]:
    """(useful, executed) training FLOPs of one step over all its groups."""
    useful = 0.0
    for group in step.groups:
        for row in group:
            useful += forward.of_sentences(
                [int(lengths[p].source[i]) for p, i in row], [int(lengths[p].target[i]) for p, i in row]
            )
    executed = len(step.groups) * forward.of_shape(step.shape)
    return TRAINING_FACTOR * useful, TRAINING_FACTOR * executed
