"""The facts of each optimizer are those of the real one, and an unknown optimizer is an error everywhere."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pipeline.engine.adafactor import Adafactor, Contents
from pipeline.engine.optimizer import OptimizerSettings, build_optimizer, matrices_of, optimizer_of
from pipeline.engine.optimizer_kinds import OPTIMIZERS, checkpoint_bytes
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.partition import expert_parameters
from pipeline.parallel.shapes import parameter_shapes
from pipeline.plan.plan import make_plan
from pipeline.verify.config import VerifyConfig
from tests.gates import GATES, moe_of
from tests.plans import device_of, model_of, setup_of, workload_of

DENSE = model_of(MoEConfig(num_experts=0))
SIZES: Any = {"source_vocabulary": 48, "target_vocabulary": 64, "shared": False}
MODELS = {
    "dense": DENSE,
    "biases": model_of(moe_of("top2"), biases=True),
    **{gate: model_of(moe_of(gate)) for gate in GATES},
}


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


@pytest.mark.parametrize("kind", OPTIMIZERS)
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
    moments = len(OPTIMIZERS[kind].moments)
    trained = 4 * sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert size < 1.5 * weights if OPTIMIZERS[kind].factored else size == weights + moments * trained


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_settings_without_effect_are_those_that_change_no_update(kind: str) -> None:
    changed = {"beta1": {"betas": (0.5, 0.98)}, "beta2": {"betas": (0.9, 0.5)}, "epsilon": {"epsilon": 1.0}}
    without_effect = {name for name, values in changed.items() if torch.equal(updated(kind, **values), updated(kind))}
    assert without_effect == set(OPTIMIZERS[kind].unused)


def updated(kind: str, **settings: Any) -> torch.Tensor:
    """Return a vector after two updates with different gradients."""
    vector = torch.nn.Parameter(torch.ones(3))
    optimizer = optimizer_of([{"params": [vector]}], OptimizerSettings(kind=kind, **settings))
    if isinstance(optimizer, Adafactor):
        optimizer.lay_out(vector, Contents.whole(vector, matrices_of("vector", vector, set())))
    optimizer.param_groups[0]["lr"] = 0.1
    for gradient in (1.0, -0.25):
        vector.grad = torch.full_like(vector, gradient)
        optimizer.step()
    return vector.detach()


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: optimizer_of([], OptimizerSettings(kind=kind)),
        lambda kind: checkpoint_bytes([], optimizer=kind, ema=False),
        lambda kind: make_plan(workload_of(optimizer=kind), setup_of(), device_of()),
        lambda kind: VerifyConfig(optimizer=kind),
    ],
)
def test_an_unknown_optimizer_is_an_error(use: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="optimizer='sgd' is not one of adamw, adafactor"):
        use("sgd")
