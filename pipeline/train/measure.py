"""Measure the cost of a training step and the peak of the machine: FLOPs, padding, memory, matmuls."""

import os
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

# Who counts a process's memory, from the most to the least exact: the kernel, for a process on a CPU; NVML, for this
# process on a GPU; CUDA, for all processes of the GPU together.
MEMORY_SOURCES = ("process", "nvml", "device")


class MatmulPeak:
    """Keeps the highest matmul rate of a run, over all its devices together, in FLOP/s.

    One measurement is too low if another program runs at that moment, and utilisation would then be too high. So the
    run measures again between its steps, and the highest rate counts.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype, flops: float = 0.0) -> None:
        """Start with the highest rate of before, on the same number of processes."""
        self.device, self.dtype, self.flops = device, dtype, flops

    def measure(self) -> None:
        """Measure again, for `PEAK_SECONDS`. A collective."""
        self.flops = max(self.flops, matmul_peak(self.device, self.dtype))


def peak_dtype(device: torch.device, precision: str) -> torch.dtype:
    """Return the dtype in which to measure the peak. It is fp32 for fp16 on a CPU, where fp16 is slower."""
    if precision == "bf16":
        return torch.bfloat16
    return torch.float16 if precision == "fp16" and device.type == "cuda" else torch.float32


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Return the best FLOP/s of several square matmuls, summed over all processes. A collective."""
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
    """Training FLOPs of one step over all its groups. `pipeline.model.flops` defines the three kinds."""

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
        """Return the FLOPs of a step.

        served: expert choices that were served, in all layers and groups.
        rows: rows that experts multiplied.
        """
        lengths = step.lengths[:, 0], step.lengths[:, 1]
        padded = step.num_groups * self._without_experts.of_shape(step.shape)
        return StepFlops(
            nominal=TRAINING_FACTOR * self._nominal.of_sentences(*lengths),
            useful=TRAINING_FACTOR * (self._without_experts.of_sentences(*lengths) + self._expert_row * served),
            executed=TRAINING_FACTOR * (padded + self._expert_row * rows),
        )


def padding(step: Step) -> float:
    """Return the share of a step's slots, source and target, that have no token."""
    slots = step.num_groups * step.shape.rows * (step.shape.source + step.shape.target)
    return 1 - int(step.lengths.sum()) / slots


class PeakMemory(NamedTuple):
    """The most bytes that a process has held so far. source: who counted them, one of `MEMORY_SOURCES`."""

    size: int
    source: str


def peak_memory(device: torch.device) -> PeakMemory:
    """Return the most memory that this process has held so far, of the device (for a CPU, of the host).

    On CUDA this is the peak of torch's pool, with its fragments, and what is outside of the pool now: CUDA's context
    and the buffers of libraries.
    """
    if device.type != "cuda":
        return PeakMemory(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "process")
    used, source = _nvml_memory(device), "nvml"
    if used is None:
        free, total = torch.cuda.mem_get_info(device)
        used, source = total - free, "device"
    outside = max(used - torch.cuda.memory_reserved(device), 0)
    return PeakMemory(torch.cuda.max_memory_reserved(device) + outside, source)


def _nvml_memory(device: torch.device) -> int | None:
    """Return the bytes that this process has on a GPU, by NVML. None without NVML, or if it lists the process not.

    In a container NVML knows processes by the numbers that they have outside.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    except pynvml.NVMLError:  # such as no driver's library, no right to ask, or a part of a GPU (MIG)
        return None
    return next((process.usedGpuMemory for process in processes if process.pid == os.getpid()), None)


def largest(values: list[float], device: torch.device) -> list[float]:
    """Return the largest of each value over all processes. A collective."""
    most = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return most.tolist()


def counted_once(values: Tensor, mesh: Mesh) -> Tensor:
    """Return the values, or zeros if another process runs the same groups and counts them.

    In a sum over all processes each group then counts once, and all processes get the same bits.
    """
    return values if mesh.get_model_parallel_rank() == 0 else torch.zeros_like(values)
