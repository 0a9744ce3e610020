"""The split of a training step: whose operations are whose, and shares beside the planner's and GShard's."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from bench.split.__main__ import rates_for
from bench.split.parts import OTHER, PARTS, assigned, is_backward, mark, seconds_by_part
from bench.split.subject import SETUP, workload_of
from bench.split.table import COLUMNS, IDLE, STEP, rows_of, table
from bench.split.worker import FullRows
from pipeline.batch.assembly import assemble
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from pipeline.plan.devices import load_device
from pipeline.plan.plan import make_plan

TINY = workload_of(quick=True, precision="fp32")
PRODUCTS = ("aten::mm", "aten::bmm")


@pytest.fixture(scope="module")
def events():
    """The profile of a micro-batch with a step of an optimizer that does one addition."""
    sizes = {"source_vocabulary": TINY.source_vocabulary, "target_vocabulary": TINY.target_vocabulary}
    model = Transformer(TINY.model, **sizes, shared=False, max_positions=96)
    initialize(model, 1)
    engine = SimpleNamespace(step=lambda: torch.ones(2).add_(1))
    mark(model, engine)
    batch = assemble([[(0, row)] for row in range(TINY.shape.rows)], TINY.shape, [FullRows(TINY)])
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        model(batch, label_smoothing=0.1).share(target_tokens=100, nonempty_groups=1).backward()
        engine.step()
    return recorded.events()


def test_every_product_of_a_pass_is_in_its_part_and_twice_in_backward(events):
    """4 layers have 6 attentions with 4 projections each, 2 dense networks, and 2 MoE layers."""
    forward, backward = Counter(), Counter()
    for event, part in assigned(events):
        if event.name in PRODUCTS:
            (backward if is_backward(event) else forward)[part] += 1
    layers = {"attention": 6 * 4, "dense": 2 * 2, "experts": 2 * 2, "logits": 1}
    assert {part: forward[part] for part in layers} == layers
    assert {part: backward[part] for part in layers} == {part: 2 * count for part, count in layers.items()}
    assert set(forward) == set(backward) == {*layers, "gate"}
    outside = {event.name for event, part in assigned(events) if part == OTHER and event.name in PRODUCTS}
    assert not outside


def test_the_sums_of_gradients_are_the_optimizers(events):
    names = {event.name for event, part in assigned(events) if part == "optimizer"}
    assert "aten::add_" in names
    assert "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad" in names


def test_seconds_are_those_of_all_operations_once(events):
    seconds = seconds_by_part(events)
    assert tuple(seconds) == (*PARTS, OTHER)
    assert sum(seconds.values()) == pytest.approx(sum(event.self_cpu_time_total for event in events) / 1e6)
    assert seconds["all_to_all"] == 0  # of one process
    assert all(seconds[part] > 0 for part in PARTS if part != "all_to_all")


@pytest.mark.parametrize(("rates", "idle"), [("cpu", False), ("h100", True)])
def test_rows_have_shares_and_plans(rates, idle):
    device = load_device(rates)
    spent = dict.fromkeys((*PARTS, OTHER), 0.1)
    measured = {
        "steps": [2.0, 9.0, 1.0],
        "parts": spent,
        "useful": 6e12,
        "peak": 1e13,
        "memory": 5,
        "memory_source": "nvml",
    }
    *rows, whole = rows_of(TINY, device, measured, "round")
    by_part = {row["part"]: row for row in rows}
    assert set(by_part) == {*PARTS, OTHER, *([IDLE] if idle else [])}
    assert not idle or by_part[IDLE]["seconds"] == pytest.approx(1.0)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    for column in ("layer_share", "planned_share", "planned_layer_share"):
        assert sum(row[column] or 0 for row in rows) == pytest.approx(1)
    assert by_part["logits"]["layer_share"] is None
    assert (by_part["all_to_all"]["gshard_128"], by_part["all_to_all"]["gshard_2048"]) == (0.16, 0.36)
    plan = make_plan(TINY, SETUP, device).step
    assert sum(row["planned"] or 0 for row in rows) == pytest.approx(plan.seconds)
    assert (whole["part"], whole["seconds"], whole["planned"], whole["mfu"]) == (STEP, 2.0, plan.seconds, 0.3)
    assert {name for row in (*rows, whole) for name in row} == set(COLUMNS)
    assert "MFU 30.0 % of 10.0 TFLOP/s" in table([*rows, whole])


def test_the_subject_on_a_gpu_is_gshards_model_of_16_experts():
    """MoE(16E, 12L) in Table 1 of arXiv:2006.16668: M=1024, H=8192, 16 heads of 128, experts in every second layer."""
    model = workload_of(quick=False, precision="bf16").model
    assert (model.dim, model.ffn_dim, model.heads, model.key_dim) == (1024, 8192, 16, 128)
    assert (model.moe.num_experts, model.moe.expert_dim, len(model.moe_layers())) == (16, 8192, 6)


@pytest.mark.parametrize(
    ("device", "name", "rates"),
    [
        ("cuda", "NVIDIA H200", "h200"),
        ("cuda", "NVIDIA A100-SXM4-80GB", "a100"),
        ("cuda", "T4", "h100"),
        ("cpu", "A", "cpu"),
    ],
)
def test_rates_are_those_of_the_device(device, name, rates):
    assert rates_for(device, name) == rates
    load_device(rates)
