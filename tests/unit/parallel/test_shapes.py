"""The computed bytes of a checkpoint equal those of the tensors that a real model and optimizer allocate."""

from typing import Any

import pytest
import torch

from pipeline.engine.adafactor import Adafactor, Contents
from pipeline.engine.optimizer import OptimizerSettings, build_optimizer, matrices_of
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.partition import expert_parameters
from pipeline.parallel.shapes import checkpoint_bytes, parameter_shapes
from tests.gates import GATES, moe_of
from tests.plans import model_of, setup_of

DENSE = model_of(MoEConfig(num_experts=0))
SIZES: Any = {"source_vocabulary": 48, "target_vocabulary": 64, "shared": False}
MODELS = {"dense": DENSE, **{gate: model_of(moe_of(gate)) for gate in GATES}}


def allocated(model: Transformer, kind: str) -> int:
    """Return the bytes of the weights and of a real optimizer's state after its first update."""
    experts = expert_parameters(model)
    optimizer = build_optimizer(model, experts, OptimizerSettings(kind=kind), expert_group="expert")
    for name, parameter in model.named_parameters():
        parameter.grad = torch.ones_like(parameter)
        if isinstance(optimizer, Adafactor):
            optimizer.lay_out(parameter, Contents.whole(parameter, matrices_of(name, parameter, experts)))
    optimizer.step()
    tensors = list(model.parameters())
    for state in optimizer.state.values():
        for name, value in state.items():
            if name != "step":
                tensors += value.values() if isinstance(value, dict) else [value]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_a_layout_cuts_experts_but_no_rows_and_columns() -> None:
    """`Adafactor.allocate` also keeps whole rows and columns on every process."""
    layout = setup_of("model", expert=2, model=2).layout
    shapes = {shape.name.rpartition(".")[2]: shape for shape in parameter_shapes(MODELS["top2"], **SIZES)}
    assert shapes["wq_MND"].factors(layout) == shapes["wq_MND"].factors() == 16 + 16
    assert shapes["wi_EMH"].factors(layout) == 2 * (16 + 16)
    assert shapes["wi_EMH"].factors() == 4 * (16 + 16)
    assert shapes["weight"].factors(layout) == 0


@pytest.mark.parametrize("kind", ["adamw", "adafactor"])
@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_is_as_large_as_weights_and_state(name: str, kind: str) -> None:
    config: ModelConfig = MODELS[name]
    sizes = {**SIZES, "source_vocabulary": 64, "shared": True} if name == "dense" else SIZES
    model = Transformer(config, **sizes, max_positions=16)
    shapes = parameter_shapes(config, **sizes)
    size = checkpoint_bytes(shapes, optimizer=kind, ema=False)
    assert size == allocated(model, kind)
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert checkpoint_bytes(shapes, optimizer=kind, ema=True) == size + weights
    assert size == 3 * weights if kind == "adamw" else size < 1.5 * weights
