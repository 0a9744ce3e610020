"""What a training step costs and what the machine could do: FLOPs, padding, memory, the matmul peak."""

import resource
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.batch.packing import Step
from pipeline.model.config import ModelConfig
from pipeline.model.flops import TRAINING_FACTOR, expert_row_flops, forward_flops, forward_flops_without_experts
from pipeline.parallel.mesh import Mesh

PEAK_SIZE = {"cpu": 1024, "cuda": 8192}
PEAK_SECONDS = 0.4


class MatmulPeak:
    """Keeps the highest matmul rate that a run has seen on its devices together, in FLOP/s.

    One measurement is too low where something else runs at that moment, and then utilisation comes out too high. So it
    is taken again while the run goes on, outside of the time of its steps, and the highest counts.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, flops: float = 0.0) -> None:
        """flops: the highest rate that was seen before on the same number of processes."""
        self.device, self.dtype, self.flops = device, dtype, flops

    def measure(self) -> None:
        """Measure once more, for `PEAK_SECONDS`. A collective: all processes call it at the same time."""
        self.flops = max(self.flops, matmul_peak(self.device, self.dtype))


def peak_dtype(device: torch.device, precision: str) -> torch.dtype:
    """The dtype in which the peak is measured; a CPU is no faster in fp16 than in fp32, most are slower by orders."""
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


class StepFlops(NamedTuple):
    """Training FLOPs of one step over all its groups; `pipeline.model.flops` says what the three kinds are."""

    nominal: float
    useful: float
    executed: float


class FlopCount:
    """Counts the training FLOPs of a model's steps."""

    def __init__(self, model: ModelConfig, target_vocabulary: int) -> None:
        self._nominal = forward_flops(model, target_vocabulary)
        self._without_experts = forward_flops_without_experts(model, target_vocabulary)
        self._expert_row = expert_row_flops(model)

    def step(self, step: Step, *, served: float, rows: float) -> StepFlops:
        """served: expert choices that were served, in all layers and groups. rows: rows that experts multiplied."""
        lengths = step.lengths[:, 0], step.lengths[:, 1]
        padded = step.num_groups * self._without_experts.of_shape(step.shape)
        return StepFlops(
            nominal=TRAINING_FACTOR * self._nominal.of_sentences(*lengths),
            useful=TRAINING_FACTOR * (self._without_experts.of_sentences(*lengths) + self._expert_row * served),
            executed=TRAINING_FACTOR * (padded + self._expert_row * rows),
        )


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
