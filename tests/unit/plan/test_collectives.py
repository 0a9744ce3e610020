"""The planner's collectives and parameters are those of the real model, cut for fake worlds on meta tensors."""

import resource
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from pipeline.batch.batch import Batch
from pipeline.batch.config import GroupShape
from pipeline.model.config import ConditionalConfig, ModelConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.moe.gates.capacity import training_capacity
from pipeline.model.moe.layer import MoE
from pipeline.model.moe.tokens import Tokens
from pipeline.model.transformer import Transformer
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from pipeline.plan.collectives import model_collectives
from pipeline.plan.shapes import process_shapes, shapes
from pipeline.plan.workload import Collective, Setup, Workload
from tests.collectives import Counted, Sums, sums_of
from tests.gates import GATES, moe_of

GSHARD = {"G": ("data", "expert"), "E": ("expert",)}
MODEL = {"H": ("model",), "N": ("model",), "V": ("model",)}
TABLES = {
    "gshard": GSHARD,
    "model": {**GSHARD, **MODEL},
    "experts not handed over": {"G": ("data",), "E": ("expert",), **MODEL},
    "experts over model": {"G": ("data", "expert"), "E": ("model",), "N": ("model",), "V": ("model",)},
    "hidden alone": {**GSHARD, "H": ("model",)},
    "all groups": {"G": ("data", "expert", "model"), "E": ("model",)},
}
SMALL = Workload(
    recipe="small",
    model=ModelConfig(
        dim=16, ffn_dim=32, heads=4, encoder_layers=2, decoder_layers=2, dropout=0.1, moe=moe_of("top2", num_experts=8)
    ),
    source_vocabulary=48,
    target_vocabulary=64,
    shared=False,
    shape=GroupShape(rows=2, source=24, target=20),
    groups_per_step=8,
    precision="fp32",
    optimizer="adamw",
    ema=False,
    max_tokens=0,
)
GSHARD_MODEL = ModelConfig(
    dim=1024,
    ffn_dim=8192,
    heads=16,
    head_dim=128,
    encoder_layers=18,
    decoder_layers=18,
    dropout=0.1,
    moe=MoEConfig(num_experts=2048, expert_dim=8192),
)
PAPER = replace(
    SMALL,
    model=GSHARD_MODEL,
    source_vocabulary=64000,
    target_vocabulary=32000,
    shape=GroupShape(rows=2, source=1024, target=1024),
    groups_per_step=2048,
)


def setup_of(data: int, expert: int, model: int, table: str = "model", recompute: str = "none") -> Setup:
    layout = Layout(table=TABLES[table], sizes={"data": data, "expert": expert, "model": model})
    return Setup(layout=layout, zero_stage=1, recompute=recompute)


@contextmanager
def process_of(setup: Setup):
    """Yield the mesh of one process of a world that has no other process."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=setup.layout.world)
    try:
        yield Mesh.build(setup.layout, torch.device("cpu"))
    finally:
        dist.destroy_process_group()


def model_of(workload: Workload, mesh: Mesh) -> Transformer:
    positions = max(workload.shape.source, workload.shape.target)
    sizes = {"source_vocabulary": workload.source_vocabulary, "target_vocabulary": workload.target_vocabulary}
    with torch.device("meta"):
        model = Transformer(workload.model, **sizes, shared=workload.shared, max_positions=positions)
    partition(model, mesh)
    return model


def batch_of(shape: GroupShape, device: str = "meta") -> Batch:
    def empty(length: int) -> torch.Tensor:
        return torch.empty(shape.rows, length, dtype=torch.int64, device=device)

    encoder = {name: empty(shape.source) for name in ("tokens", "segments", "positions")}
    decoder = {name: empty(shape.target) for name in ("input_tokens", "target_tokens", "segments", "positions")}
    return Batch(
        **{f"encoder_{name}_BL": value for name, value in encoder.items()},
        **{f"decoder_{name}_BT": value for name, value in decoder.items()},
        pair_BL=empty(shape.source),
        pair_BT=empty(shape.target),
        num_pairs=3,
    )


def count(workload: Workload, setup: Setup) -> tuple[dict[str, tuple[int, ...]], Sums, Sums]:
    """Return the parameters of one process, and its collectives of one step as counted and by formula."""
    with process_of(setup) as mesh:
        model = model_of(workload, mesh)
        model.recompute(setup.recompute)
        with Counted() as counted:
            for _ in range(setup.accumulation(workload)):
                losses = model(batch_of(workload.shape), label_smoothing=0.1)
                losses.share(target_tokens=1, nonempty_groups=1).backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        expected = sums_of(model_collectives(workload, setup), mesh)
    return {name: tuple(p.shape) for name, p in model.named_parameters()}, counted.sums, expected


def check(workload: Workload, setup: Setup) -> Sums:
    parameters, counted, expected = count(workload, setup)
    assert {part.name: part.sizes for part in process_shapes(workload, setup.layout)} == parameters
    assert counted == expected
    return counted


@pytest.mark.parametrize(
    ("table", "sizes"),
    [
        ("gshard", (2, 4, 1)),
        ("gshard", (2, 2, 2)),
        ("model", (1, 4, 4)),
        ("model", (8, 1, 2)),
        ("model", (1, 4, 1)),
        ("experts not handed over", (4, 2, 2)),
        ("experts over model", (2, 4, 2)),
        ("hidden alone", (2, 4, 2)),
        ("all groups", (2, 2, 2)),
    ],
)
def test_the_formulas_are_equal_to_the_count_under_every_layout(table, sizes):
    check(SMALL, setup_of(*sizes, table))


@pytest.mark.parametrize(
    ("recompute", "dropout", "changes", "table"),
    [
        ("selective", 0.1, {}, "model"),
        ("selective", 0.0, {}, "model"),
        ("layers", 0.1, {}, "experts over model"),
        ("all", 0.1, {}, "model"),
        ("all", 0.0, {}, "experts over model"),
        ("all", 0.0, {"conditional": ConditionalConfig()}, "model"),
        ("all", 0.0, {"shared_experts": 2}, "model"),
        ("all", 0.1, {"shared_experts": 2}, "experts over model"),
        ("all", 0.0, {"shared_experts": 2, "conditional": ConditionalConfig()}, "model"),
    ],
)
def test_recomputation_sends_again(recompute, dropout, changes, table):
    model = replace(SMALL.model, dropout=dropout, moe=replace(SMALL.model.moe, **changes))
    check(replace(SMALL, model=model), setup_of(2, 4, 4, table, recompute))


@pytest.mark.parametrize(
    ("gate", "dispatch"),
    [("top1", "gather"), ("top2", "einsum"), ("balanced", "gather"), ("expert_choice", "gather")],
)
def test_gates_with_a_capacity(gate, dispatch):
    moe = moe_of(gate, num_experts=8, dispatch=dispatch)
    check(replace(SMALL, model=replace(SMALL.model, moe=moe)), setup_of(2, 4, 4))


@pytest.mark.parametrize("gate", GATES)
def test_the_parameters_of_every_gate_with_and_without_a_shared_vocabulary(gate):
    model = replace(SMALL.model, moe=moe_of(gate, num_experts=8, shared_experts=2, conditional={}))
    workload, setup = replace(SMALL, model=model, source_vocabulary=64, shared=True), setup_of(1, 2, 2)
    with process_of(setup) as mesh:
        parameters = {name: tuple(p.shape) for name, p in model_of(workload, mesh).named_parameters()}
    assert {part.name: part.sizes for part in process_shapes(workload, setup.layout)} == parameters


def test_a_cut_vocabulary_of_many_chunks(monkeypatch):
    for module in ("pipeline.model.loss", "pipeline.plan.layers"):
        names = ("CHUNK", "CHUNK_TOKENS") if module.endswith("loss") else ("LOGITS_CHUNK", "LOGITS_TOKENS")
        for name in names:
            monkeypatch.setattr(f"{module}.{name}", 9)
    for recompute in ("none", "selective"):
        check(SMALL, setup_of(8, 1, 4, recompute=recompute))


@pytest.mark.parametrize("gate", GATES)
def test_the_capacity_of_a_gate_is_that_of_its_router(gate):
    layer = MoE(8, moe_of(gate))
    initialize(layer, 1)
    tokens = 37
    segments = torch.ones(1, tokens, dtype=torch.int64)
    routing = layer.router(torch.randn(1, tokens, 8), Tokens.of_rows(segments, segments * 0, num_groups=1, num_pairs=1))
    assert routing.decision.capacity == training_capacity(layer.config.gate_of(decoder=False), tokens, 4)


def test_the_papers_largest_model_at_its_own_scale():
    """MoE(2048E, 36L) on 2,048 processes (arXiv:2006.16668, Table 1) is counted without starting them."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    setup = setup_of(1, 2048, 1, "gshard")
    parameters, counted, expected = count(PAPER, setup)
    seconds, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total = sum(shape.elements for shape in shapes(PAPER))
    of_process = sum(torch.Size(sizes).numel() for sizes in parameters.values())
    expert = 2 * 1024 * 8192
    assert total == of_process + 18 * 2047 * expert == 619_366_506_496
    # 18 MoE layers, there and back, forward and backward; 2 slots for each of 2048 experts, 1024 numbers of 4 bytes
    assert counted == expected == {("all_to_all", tuple(range(2048))): (72 * 2 * 2048 * 1024 * 4, 72)}
    assert seconds < 120
    assert peak < max(before, 4 << 20)  # KiB


def test_the_papers_model_of_12_layers_with_a_model_axis():
    shallow = replace(PAPER, model=replace(GSHARD_MODEL, encoder_layers=6, decoder_layers=6), groups_per_step=512)
    counted = check(shallow, setup_of(1, 512, 4))
    model, expert = tuple(range(4)), tuple(range(0, 2048, 4))
    assert set(counted) == {("all_to_all", expert), ("all_reduce", model)}


def test_collectives_of_dropless_gates_are_estimates():
    model = replace(SMALL.model, moe=moe_of("dropless", num_experts=8))
    collectives = model_collectives(replace(SMALL, model=model), setup_of(1, 4, 1))
    tokens, layers = 2 * 24 + 2 * 20, {48: 1, 40: 1}
    assert sum(layers.values()) == model.num_moe_layers(2) + model.num_moe_layers(2)
    rows = 4 * 2 * tokens * 16 * 4  # two choices a token, there and back, forward and backward
    counts = 2 * 8 * 8
    micro = 8 // 4
    assert collectives == [
        Collective(
            part="dispatch", kind="all_to_all", axes=("expert",), bytes=micro * (rows + counts), count=micro * 10
        )
    ]
