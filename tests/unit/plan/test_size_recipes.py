"""The recipes in recipes/sizes build and step, fit the machines of docs/sizes.md, and stand side by side in hours."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from docs.size_tables import MACHINES, plans
from pipeline.config import load_config
from pipeline.engine.deepspeed import AUTOCAST
from pipeline.engine.optimizer import OptimizerSettings, build_optimizer, set_learning_rate
from pipeline.model.transformer import Transformer
from pipeline.parallel.partition import expert_parameters
from pipeline.plan.command import answer
from pipeline.plan.config import load_plan
from pipeline.plan.devices import load_device
from pipeline.plan.memory import memory
from pipeline.plan.plan import workload_of
from tests.plans import setup_of
from tests.unit.plan.test_collectives import batch_of

RECIPES = [f"{recipe}{twin}" for recipe in MACHINES for twin in ("", "_moe")]


class ProductTypes(TorchDispatchMode):
    """Count matrix products by the dtype of what they return."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.counts[result.dtype] += 1
        return result


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_builds_and_steps(recipe):
    """On tensors without memory, in bf16: a group of each shape forward and backward, an update of every parameter."""
    config = load_config([f"recipes=sizes/{recipe}"])
    vocab, train, experts = config.vocab, config.train, config.model.moe.num_experts
    with FakeTensorMode():
        model = Transformer(
            config.model,
            source_vocabulary=vocab.source_size,
            target_vocabulary=vocab.target_size,
            shared=vocab.shared,
            max_positions=max(config.batch.max_source, config.batch.max_target),
        )
        tagged = expert_parameters(model)
        assert bool(tagged) == bool(experts)
        settings = OptimizerSettings(
            kind=train.optimizer, betas=(train.beta1, train.beta2), weight_decay=train.weight_decay
        )
        optimizer = build_optimizer(model, tagged, settings, expert_group="experts")
        set_learning_rate(optimizer.param_groups, train.learning_rate_at(train.warmup_steps))
        for shape in config.batch.shapes:
            batch = batch_of(replace(shape, target=shape.target or shape.source), device="cpu")
            with torch.autocast("cpu", dtype=getattr(torch, AUTOCAST[train.precision])), ProductTypes() as products:
                losses = model(batch, label_smoothing=train.label_smoothing)
            assert (
                products.counts[torch.bfloat16] > 5 * products.counts[torch.float32]
            )  # the gates alone are in float32
            losses.share(target_tokens=1, nonempty_groups=1).backward()
        optimizer.step()
    for parameter in model.parameters():
        assert optimizer.state[parameter]["exp_avg_sq"].shape == parameter.grad.shape == parameter.shape
    planned = memory(workload_of(config), setup_of(), load_device("h100"))
    assert planned.weights == 4 * sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("recipe", "devices", "device"),
    [(recipe, *machine) for recipe, machines in MACHINES.items() for machine in machines],
)
def test_a_recipe_and_its_twin_fit_the_machine(recipe, devices, device):
    """They fit as they are: a plan that had to be replaced by another would say what was asked for."""
    for plan in plans(recipe, devices, device):
        assert plan["memory"]["total"] <= plan["memory"]["available"]
        assert "does_not_fit" not in plan
        assert (plan["recompute"], plan["zero_stage"]) == ("none", 1)
        assert plan["budget"]["cost"] == pytest.approx({"a100": 2, "h100": 3}[device] * plan["budget"]["device_hours"])


def test_recipes_side_by_side_have_device_hours():
    """Recipes without a paper's figures, in the order of their expected.csv; small has two groups for eight devices."""
    result = answer(load_plan(["recipes=sizes", "devices=8", "device=a100"]))
    assert [plan["recipe"] for plan in result.values["plans"]] == [f"sizes/{recipe}" for recipe in RECIPES]
    head, *rows = [line.split() for line in result.text.splitlines()]
    assert " ".join(head).endswith("all-to-all device hours days cost")
    for row, plan in zip(rows, result.values["plans"][2:], strict=False):
        assert row[0] == plan["recipe"]
        assert float(row[14]) == pytest.approx(plan["budget"]["device_hours"], rel=0.05)
    assert "sizes/small: batch.groups_per_step=2 is not divisible by devices=8; choose devices=2" in result.text
