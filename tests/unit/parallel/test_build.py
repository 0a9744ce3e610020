"""A model that is built in parts equals the parts of a whole one, bit for bit, and needs no memory for the whole."""

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from pipeline.config import ROOT
from pipeline.model.config import ModelConfig
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from pipeline.parallel.build import build
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from tests.gates import GATES, moe_of

GSHARD = {"G": ("data", "expert"), "E": ("expert",)}
MODEL = {**GSHARD, "H": ("model",), "N": ("model",), "V": ("model",)}
CONFIG = ModelConfig(
    dim=16, ffn_dim=32, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.1, moe=moe_of("top2", conditional={})
)
SIZES = {"source_vocabulary": 48, "target_vocabulary": 32, "max_positions": 9}


@contextmanager
def process_of(table, sizes, rank):
    layout = Layout(table=table, sizes=dict(zip(("data", "expert", "model"), sizes, strict=True)))
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=layout.world)
    try:
        yield Mesh.build(layout, torch.device("cpu"))
    finally:
        dist.destroy_process_group()


def assert_equal(config, mesh, *, shared=False):
    sizes = {**SIZES, "source_vocabulary": 32} if shared else SIZES
    whole = Transformer(config, **sizes, shared=shared)
    initialize(whole, 7)
    partition(whole, mesh)
    built = build(config, mesh, **sizes, shared=shared, seed=7)
    expected, parts = dict(whole.named_parameters()), dict(built.named_parameters())
    assert list(parts) == list(expected)
    for name, parameter in expected.items():
        assert torch.equal(parts[name], parameter), name
        assert parts[name].requires_grad == parameter.requires_grad
    assert torch.equal(built.positions, whole.positions)
    assert (built.source_embedding_VM is built.target_embedding_VM) == shared


@pytest.mark.parametrize(
    ("table", "sizes"),
    [(GSHARD, (2, 2, 1)), (MODEL, (2, 1, 2)), (MODEL, (1, 2, 2)), (MODEL, (1, 1, 4)), (GSHARD, (4, 1, 1))],
)
def test_every_process_has_its_part_of_the_whole(table, sizes):
    for rank in range(4):
        with process_of(table, sizes, rank) as mesh:
            assert_equal(CONFIG, mesh)


@pytest.mark.parametrize("gate", GATES)
def test_the_parts_of_every_gate(gate):
    with process_of(MODEL, (1, 2, 2), 3) as mesh:
        assert_equal(replace(CONFIG, moe=moe_of(gate)), mesh, shared=True)


def test_a_size_that_does_not_divide_is_refused():
    with process_of(MODEL, (1, 1, 3), 0) as mesh, pytest.raises(ValueError, match="not divisible by 3 processes"):
        build(CONFIG, mesh, **SIZES, shared=False, seed=7)


MEASURE = """
import torch, torch.distributed as dist
from pathlib import Path
from torch.testing._internal.distributed.fake_pg import FakeStore
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.parallel.build import build
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
layout = Layout(
    table={"G": ("data", "expert"), "E": ("expert",), "H": ("model",), "V": ("model",)},
    sizes={"data": 1, "expert": 2, "model": 2},
)
mesh = Mesh.build(layout, torch.device("cpu"))
moe = MoEConfig(num_experts=32, expert_dim=2048)
config = ModelConfig(dim=512, ffn_dim=2048, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.0, moe=moe)
status = Path("/proc/self/status")  # getrusage would count what the process that started this one had
peak = lambda: int(next(line for line in status.read_text().splitlines() if line.startswith("VmHWM")).split()[1]) << 10
build(config, mesh, source_vocabulary=64, target_vocabulary=64, shared=True, max_positions=8, seed=1)
"""


def test_no_process_ever_holds_the_whole():
    """Two layers have 128 MiB of experts each, and this process has a quarter of them. All else is small."""
    script = MEASURE.replace("build(config", "before = peak()\nmodel = build(config", 1) + "print(before, peak())\n"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = map(int, result.stdout.split())
    whole = 2 * 32 * 2 * 512 * 2048 * 4
    assert whole // 4 < after - before < whole // 2
