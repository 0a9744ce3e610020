"""Numbers of parameters against those of the built model, on meta tensors."""

import pytest
import torch

from pipeline.engine.optimizer import OptimizerSettings, build_optimizer
from pipeline.model.config import MoEConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.partition import expert_parameters, parameter_cuts
from pipeline.plan.parameters import count
from pipeline.plan.shapes import optimizer_groups
from tests.gates import GATES, moe_of
from tests.plans import model_of, setup_of, workload_of

MODELS = {name: moe_of(name) for name in GATES}
MODELS |= {"conditional": moe_of("top2", conditional={"budget": 0.5}), "dense": MoEConfig()}
MODELS |= {"shared experts": moe_of("top2", shared_experts=2)}
BLOCKS = [{}, {"activation": "swiglu", "norm": "rms"}]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("blocks", BLOCKS, ids=["relu", "modern"])
def test_one_process_has_the_parameters_of_the_partitioned_model(name: str, blocks: dict[str, str]) -> None:
    workload = workload_of(model=model_of(MODELS[name], **blocks), shared=name == "dense", source_vocabulary=64)
    with torch.device("meta"):
        model = Transformer(
            workload.model, source_vocabulary=64, target_vocabulary=64, shared=workload.shared, max_positions=24
        )
    for setup in (setup_of(), setup_of("model", data=2, expert=2, model=4), setup_of("model", model=2)):
        cuts, experts = parameter_cuts(model, setup.layout), expert_parameters(model)
        parts = {key: p.numel() // setup.layout.parts(cuts.get(key, ())) for key, p in model.named_parameters()}
        whole = {key: p.numel() for key, p in model.named_parameters()}
        parameters = count(workload, setup)
        assert parameters.total == sum(whole.values())
        assert parameters.experts == sum(whole[key] for key in experts)
        assert parameters.per_device == sum(parts.values())
        assert parameters.replicated == sum(size for key, size in whole.items() if key not in cuts)


def test_experts_cut_by_a_model_axis_by_hand() -> None:
    """Two MoE layers have 8 experts of 2 · 16 · 24, cut over 4 processes, with hidden units cut over 2."""
    alone, cut = (count(workload_of(), setup) for setup in (setup_of(), setup_of("model", expert=4, model=2)))
    assert alone.experts == cut.experts == 2 * 8 * 2 * 16 * 24
    assert alone.per_device == alone.total == alone.replicated
    common = alone.total - alone.experts
    # embeddings, three dense layers, and four projections in each of seven attentions are halved as well
    halved = 16 * (48 + 64) + 3 * 2 * 16 * 32 + 7 * 4 * 16 * 16
    assert cut.per_device == 2 * 2 * 2 * 16 * 12 + common - halved // 2


@pytest.mark.parametrize("factors", [{}, {"experts": 0.5, "encoder": 2.0, "norms": 0.5}], ids=str)
@pytest.mark.parametrize("biases", [False, True])
def test_groups_are_those_of_the_optimizer(biases: bool, factors: dict[str, float]) -> None:
    workload = workload_of(model=model_of(biases=biases), rate_factors=tuple(factors.items()))
    model = Transformer(workload.model, source_vocabulary=48, target_vocabulary=64, shared=False, max_positions=24)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    settings = OptimizerSettings(weight_decay=0.5, rate_factors=factors)
    groups = build_optimizer(model, expert_parameters(model), settings, expert_group="expert").param_groups
    assert len(groups) >= 3 + biases
    assert [
        (group.get("moe", False), group["weight_decay"] == 0, group["factor"], [names[id(p)] for p in group["params"]])
        for group in groups
    ] == [(*group, [shape.name for shape in shapes]) for group, shapes in optimizer_groups(workload)]
