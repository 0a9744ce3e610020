"""Numbers of parameters against the built model, which has no memory here."""

import pytest
import torch

from pipeline.model.config import MoEConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.partition import expert_parameters, parameter_cuts
from pipeline.plan.parameters import count
from tests.gates import GATES, moe_of
from tests.plans import model_of, setup_of, workload_of

MODELS = {name: moe_of(name) for name in GATES}
MODELS |= {"conditional": moe_of("top2", conditional={"budget": 0.5}), "dense": MoEConfig()}


@pytest.mark.parametrize("name", MODELS)
def test_of_one_process_are_those_of_the_partitioned_model(name: str) -> None:
    workload = workload_of(model=model_of(MODELS[name]), shared=name == "dense", source_vocabulary=64)
    with torch.device("meta"):
        model = Transformer(
            workload.model, source_vocabulary=64, target_vocabulary=64, shared=workload.shared, max_positions=24
        )
    for setup in (setup_of(), setup_of("model", data=2, expert=2, model=4), setup_of("model", model=2)):
        cuts, experts = parameter_cuts(model, setup.layout), expert_parameters(model)
        parts = {key: p.numel() // setup.layout.parts(cuts.get(key, ())) for key, p in model.named_parameters()}
        whole = {key: p.numel() for key, p in model.named_parameters()}
        found = count(workload, setup)
        assert found.total == sum(whole.values())
        assert found.experts == sum(whole[key] for key in experts)
        assert found.per_device == sum(parts.values())
        assert found.replicated == sum(size for key, size in whole.items() if key not in cuts)


def test_what_experts_cut_by_a_model_axis_come_to() -> None:
    """By hand: two MoE layers of 8 experts of 2 · 16 · 24, over 4 processes and their hidden units over 2."""
    alone, cut = (count(workload_of(), setup) for setup in (setup_of(), setup_of("model", expert=4, model=2)))
    assert alone.experts == cut.experts == 2 * 8 * 2 * 16 * 24
    assert alone.per_device == alone.total == alone.replicated
    rest = alone.total - alone.experts
    # embeddings, three dense layers, and four projections in each of seven attentions are halved as well
    halved = 16 * (48 + 64) + 3 * 2 * 16 * 32 + 7 * 4 * 16 * 16
    assert cut.per_device == 2 * 2 * 2 * 16 * 12 + rest - halved // 2
