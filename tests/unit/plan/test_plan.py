"""A whole plan: its sums, and its JSON."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from pipeline.batch.config import GroupShape
from pipeline.config import load_config
from pipeline.model.flops import forward_flops
from pipeline.plan.collectives import engine_collectives, model_collectives
from pipeline.plan.plan import make_plan, workload_of
from pipeline.plan.workload import KINDS, PARTS
from tests.plans import device_of, model_of, setup_of
from tests.plans import workload_of as small

DEVICE = device_of(latency=1e-6, network_latency=1e-5, launch=1e-6)


def test_a_step_is_the_sum_of_its_parts_and_the_budget_follows() -> None:
    workload, setup = small(), setup_of("model", data=2, expert=2, model=2)
    plan = make_plan(workload, setup, DEVICE)
    assert set(plan.step.parts) <= {*PARTS, *KINDS}
    assert plan.step.seconds == pytest.approx(sum(plan.step.parts.values()))
    assert plan.step.tokens_per_second == pytest.approx(32 * 2 * 20 / plan.step.seconds)
    steps = 1_000_000 / (32 * 2 * 20)
    assert plan.budget.days == pytest.approx(steps * plan.step.seconds / 86400)
    assert plan.budget.device_hours == pytest.approx(8 * 24 * plan.budget.days)
    assert plan.budget.cost == pytest.approx(2.0 * plan.budget.device_hours)


def test_utilisation_is_useful_flops_over_the_peak_of_all_devices() -> None:
    workload = small(precision="bf16")
    plan = make_plan(workload, setup_of("model", data=2, expert=2, model=2), DEVICE)
    useful = 3 * forward_flops(workload.model, 64).of_shape(workload.shape) * 32
    assert plan.flops.useful_per_step == useful
    assert plan.flops.useful_per_token == useful / (32 * 2 * 20)
    assert plan.step.mfu == pytest.approx(useful / plan.step.seconds / (8 * 2e12))
    assert plan.flops.executed_per_step > useful


def test_collectives_come_with_their_bytes_and_link() -> None:
    workload, setup = small(), setup_of("model", data=2, expert=2, model=2)
    plan = make_plan(workload, setup, DEVICE)
    assert [transfer.collective for transfer in plan.collectives] == [
        *model_collectives(workload, setup),
        *engine_collectives(workload, setup),
    ]
    by_axes = {transfer.collective.axes: transfer for transfer in plan.collectives}
    assert by_axes[("model",)].link == "node"  # ranks 0 and 1
    assert by_axes[("data",)].link == "network"  # ranks 0 and 4, of nodes of four
    assert by_axes[("data",)].bytes_inside == 0
    assert all(transfer.seconds > 0 for transfer in plan.collectives)


def test_fine_grained_experts_cost_what_few_large_ones_cost() -> None:
    """Exactly, with router and shared expert: 2 · 2 · 384 + 8 = 2 · (8 + 1) · 84 + 32 times 2 · M of a token."""
    presets = (["model.moe.expert_dim=384"], ["model=fine_grained"])
    sizes = ["model.dim=192", "model.ffn_dim=768", "model.heads=6", "model.encoder_layers=3", "model.decoder_layers=3"]
    configs = [load_config([*sizes, *words]) for words in presets]
    few, fine = (make_plan(workload_of(config), setup_of(expert=2), DEVICE) for config in configs)
    assert fine.flops.useful_per_token == few.flops.useful_per_token
    assert fine.parameters.active == few.parameters.active
    assert fine.parameters.total / few.parameters.total == pytest.approx(0.97, abs=0.005)
    moe = configs[1].model.moe
    assert (moe.num_experts, moe.gate.kind, moe.gate.experts_per_token, moe.shared_experts) == (32, "topk", 8, 1)


def test_fine_grained_experts_of_the_demo_cost_nearly_the_same() -> None:
    moe, fine = (load_config(words).model.moe for words in ([], ["model=fine_grained"]))
    units = [2 * 2 * moe.expert_dim + 8, 2 * 9 * fine.expert_dim + 32]  # 2 · M of a token, as above
    assert (fine.expert_dim, units[1] / units[0]) == (56, pytest.approx(1.008, abs=0.0005))


def test_faster_devices_and_fewer_tokens_take_less_time() -> None:
    workload, setup = small(), setup_of("model", data=2, expert=2, model=2)
    seconds = make_plan(workload, setup, DEVICE).step.seconds
    for better in ({"bandwidth": 1e13}, {"network": 1e10}, {"launch": 0.0}, {"latency": 0.0}, {"link": 1e12}):
        assert make_plan(workload, setup, replace(DEVICE, **better)).step.seconds < seconds
    half = replace(workload, shape=GroupShape(rows=1, source=24, target=20))
    assert make_plan(half, setup, DEVICE).step.seconds < seconds
    assert make_plan(workload, replace(setup, recompute="all"), DEVICE).step.seconds > seconds


def test_the_keys_of_json() -> None:
    plan = make_plan(small(), setup_of(expert=4), DEVICE)
    values = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert list(values)[:6] == ["recipe", "device", "devices", "layout", "zero_stage", "recompute"]
    assert list(values)[6:] == ["parameters", "memory", "flops", "collectives", "step", "budget"]
    assert values["layout"] == {
        "table": {"G": ["data", "expert"], "E": ["expert"]},
        "sizes": {"data": 1, "expert": 4, "model": 1},
    }
    assert {"total", "active", "experts", "replicated", "per_device"} == set(values["parameters"])
    assert {"weights", "gradients", "optimizer", "activations", "buffers", "resident"} < set(values["memory"])
    assert values["memory"]["total"] == plan.memory.total
    assert values["memory"]["fits"] is True
    assert values["step"]["seconds"] == plan.step.seconds
    assert {"kind", "axes", "bytes", "count", "processes", "link", "seconds"} < set(values["collectives"][0])


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match=r"groups_per_step=32 is not divisible by the 5 processes .* choose 35"):
        make_plan(small(), setup_of(data=5), DEVICE)
    with pytest.raises(ValueError, match="E=8 is not divisible by 16"):
        make_plan(small(), setup_of(expert=16), DEVICE)
    with pytest.raises(ValueError, match="N=4 is not divisible by 8"):
        make_plan(small(model=model_of(ffn_dim=64)), setup_of("model", model=8), DEVICE)


def test_a_recipe_is_planned_at_its_largest_shape_and_nearest_budget() -> None:
    config = load_config(["recipes=smoke", "train.max_steps=3", "train.max_tokens=0", "train.precision=fp16"])
    workload = workload_of(config)
    shape = config.batch.shapes[-1]
    assert (workload.shape, workload.precision) == (shape, "bf16")
    assert workload.max_tokens == 3 * config.batch.groups_per_step * shape.rows * shape.target
    two_budgets = replace(config, train=replace(config.train, max_tokens=5))
    assert workload_of(two_budgets).max_tokens == 5


@pytest.mark.parametrize(
    ("pairs", "shared", "added"),
    [
        (["fr-en", "ru-en"], False, (1000, 0)),
        (["en-ru"], False, (0, 1000)),
        (["en-ru"], True, (1000, 1000)),
        (["all"], False, (1000, 1000)),
        (["fr-en"], False, (0, 0)),
    ],
)
def test_a_vocabulary_that_grows_is_planned_with_the_most_pieces_that_it_can_get(
    pairs: list[str], shared: bool, added: tuple[int, int]
) -> None:
    config = load_config(["recipes=smoke"])
    size = config.vocab.source_size
    changes = {"shared": shared, "target_size": size, "from_run": "known", "extend": {"ru": None}, "extend_size": 1000}
    workload = workload_of(replace(config, pairs=pairs, vocab=replace(config.vocab, **changes)))
    assert (workload.source_vocabulary - size, workload.target_vocabulary - size) == added


def test_planning_loads_no_torch() -> None:
    code = "import sys, pipeline.plan.plan, pipeline.plan.devices; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
