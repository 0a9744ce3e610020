"""The costs of a training step, and the matmul peak."""

import os
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from pipeline.batch.config import GroupShape
from pipeline.batch.packing import Step
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.train.measure import MEMORY_SOURCES, PEAK_SIZE, FlopCount, MatmulPeak, matmul_peak, padding, peak_memory

CPU = torch.device("cpu")
# 2 groups of 2 rows of 8 + 4 slots; 6 + 3 and 5 + 2 tokens in one row, 4 + 4 in another
STEP = Step(
    shape=GroupShape(rows=2, source=8, target=4),
    num_groups=2,
    sentences=np.array([[0, 0], [0, 1], [1, 0]]),
    lengths=np.array([[6, 3], [5, 2], [4, 4]]),
    ends=np.array([2, 3]),
)


def test_padding_counts_both_sides_and_empty_groups():
    assert STEP.groups == [[[(0, 0), (0, 1)], [(1, 0)]], []]
    assert padding(STEP) == pytest.approx(1 - (15 + 9) / 48)


def test_useful_flops_count_served_choices_and_executed_flops_all_rows():
    """These values are computed by hand, with M = 4, one head of 4, dense H = 8, expert H = 6 and 10 target pieces.

    The second of two layers of each side has experts.
    """
    model = ModelConfig(
        dim=4,
        ffn_dim=8,
        heads=1,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        moe=MoEConfig(num_experts=4, expert_dim=6),
    )
    count = FlopCount(model, target_vocabulary=10).step(STEP, served=30, rows=50)

    def rest(source: float, target: float, squares: float, target_squares: float, products: float) -> float:
        projection, attention = 2 * 4 * 4, 2 * 2 * 4  # FLOPs a token, and a pair of query and key
        network, router, logits = 2 * 2 * 4 * 8, 2 * 4 * 4, 2 * 4 * 10
        encoder = source * (2 * 4 * projection + network + router) + squares * 2 * attention
        cross = source * 2 * 2 * projection + products * 2 * attention
        decoder = target * (2 * 4 * projection + 2 * 2 * projection + network + router + logits)
        return encoder + cross + decoder + target_squares * 2 * attention

    row = 2 * 2 * 4 * 6
    real = rest(15, 9, 36 + 25 + 16, 9 + 4 + 16, 18 + 10 + 16)
    padded = rest(32, 16, 4 * 64, 4 * 16, 4 * 32)
    assert count.nominal == 3 * (real + (15 + 9) * 2 * row)
    assert count.useful == 3 * (real + 30 * row)
    assert count.executed == 3 * (padded + 50 * row)


@pytest.fixture
def one_process(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_peak_is_the_rate_of_real_products(one_process):
    """The reference is the FLOPs that torch counts, over the time of another clock.

    Other programs only lower a rate. So both measure in turns until both have had an undisturbed moment. A wrong factor
    would stay, and the smallest one is 2.
    """
    size = PEAK_SIZE["cpu"]
    a, b = torch.randn(size, size), torch.randn(size, size)
    with FlopCounterMode(display=False) as counter:
        a @ b
    peak, fastest = 0.0, float("inf")
    for _ in range(20):
        peak = max(peak, matmul_peak(CPU, torch.float32))
        for _ in range(20):
            began = time.perf_counter()
            a @ b
            fastest = min(fastest, time.perf_counter() - began)
        if 0.75 < peak / (counter.get_total_flops() / fastest) < 1.33:
            return
    pytest.fail(f"peak {peak:.3g}, expected about {counter.get_total_flops() / fastest:.3g} FLOP/s")


def test_the_highest_peak_counts(one_process):
    unreachable = 1e18
    for before, highest in ((0.0, False), (unreachable, True)):
        peak = MatmulPeak(CPU, torch.float32, before)
        peak.measure()
        assert (peak.flops == unreachable) == highest
        assert peak.flops > 0


def test_peak_memory_is_in_bytes_and_never_falls():
    before, source = peak_memory(CPU)
    assert source == "process"
    block = torch.ones(1 << 27, dtype=torch.uint8)
    assert peak_memory(CPU).size >= max(before, len(block))
    del block
    assert peak_memory(CPU).size >= before


class NvmlError(Exception):
    pass


def nvml(processes, error=None):
    """Return NVML's module on a machine with one GPU. processes: bytes by number. error: raised when asked for them."""

    def listed(handle):
        assert handle == "GPU-12-34"
        if error is not None:
            raise error
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in processes.items()]

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetComputeRunningProcesses=listed,
    )


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nvml({1: 10**9, os.getpid(): 8 * 10**9}), (11 * 10**9, "nvml")),
        (nvml({1: 10**9}), (12 * 10**9, "device")),
        (nvml({os.getpid(): None}), (12 * 10**9, "device")),
        (nvml({}, NvmlError()), (12 * 10**9, "device")),
        (None, (12 * 10**9, "device")),
    ],
    ids=["listed", "in a container", "unknown to the driver", "refused", "not installed"],
)
def test_peak_memory_on_a_gpu_counts_fragments_and_context(monkeypatch, module, expected):
    """No GPU is needed to add. This process has 8 GB now, 6 of them in torch's pool, which had 9. Others have 1 GB."""
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 6 * 10**9)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 9 * 10**9)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (71 * 10**9, 80 * 10**9))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="12-34"))
    assert peak_memory(torch.device("cuda", 0)) == expected
    assert expected[1] in MEMORY_SOURCES
