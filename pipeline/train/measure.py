"""What a training step costs and what the machine could do: FLOPs, padding, memory, the matmul peak."""

import resource
import time

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.batch.packing import Step
from pipeline.model.flops import TRAINING_FACTOR, Forward
from pipeline.parallel.mesh import Mesh

PEAK_SIZE = {"cpu": 1024, "cuda": 8192}
PEAK_SECONDS = 0.4


def peak_dtype(device: torch.device, precision: str) -> torch.dtype:
    """In which the peak is measured; a CPU is no faster in fp16 than in fp32, most are slower by orders."""
    if precision == "bf16":
        return torch.bfloat16
    return torch.float16 if precision == "fp16" and device.type == "cuda" else torch.float32


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


def step_flops(step: Step, forward: Forward) -> tuple[float, float]:
    """(useful, executed) training FLOPs of one step over all its groups."""
    useful = forward.of_sentences(step.lengths[:, 0], step.lengths[:, 1])
    executed = step.num_groups * forward.of_shape(step.shape)
    return TRAINING_FACTOR * useful, TRAINING_FACTOR * executed


def padding(step: Step) -> float:
    """Share of a step's slots, source and target, that no token takes."""
    slots = step.num_groups * step.shape.rows * (step.shape.source + step.shape.target)
    return 1 - int(step.lengths.sum()) / slots


def peak_memory(device: torch.device) -> int:
    """Most bytes this process has held so far: of the device's memory, or of the host's where the device is a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def largest(values: list[float], device: torch.device) -> list[float]:
    """Of each value over all processes. A collective."""
    most = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return most.tolist()


def counted_once(values: Tensor, mesh: Mesh) -> Tensor:
    """The values, or zeros where another process runs the same groups and counts them: what a sum over all processes is
    taken of, so that each group counts once and all processes get the same bits."""
    return values if mesh.get_model_parallel_rank() == 0 else torch.zeros_like(values)
