"""Models that no export can represent are refused before any work."""

import pytest

from pipeline.export.exportable import check_huggingface
from pipeline.model.config import ConditionalConfig, MoEConfig
from pipeline.model.moe.gates.config import DroplessConfig, HierarchicalConfig
from tests.exports import config_of
from tests.gates import GATES, gates_where, moe_of

EXACT = gates_where(lambda gate: not gate.unexportable)


@pytest.mark.parametrize("gate", GATES)
def test_gates_that_evaluate_as_top_2_are_exported_and_others_refused(gate):
    config = config_of(moe=moe_of(gate))
    if gate in EXACT:
        check_huggingface(config, shared=True)
        return
    name = "gate" if config.moe.gate.unexportable else "encoder_gate"
    with pytest.raises(
        ValueError, match=rf"model.moe.{name} .* only gates top2, dropless, topk and noisy_topk with k=2"
    ):
        check_huggingface(config, shared=True)


@pytest.mark.parametrize(
    ("changes", "shared", "message"),
    [
        ({}, False, "vocab.shared=false: .* train with vocab: shared"),
        ({"activation": "swiglu"}, True, "model.activation=swiglu: .* none but relu; train with .* format=ctranslate2"),
        ({"norm": "rms"}, True, "model.norm=rms: .* none but layer; train with model.norm=layer"),
        ({"head_dim": 16}, True, "model.head_dim=16 times model.heads=4 is not model.dim=32"),
        (
            {"moe": MoEConfig(num_experts=4, expert_dim=8, gate=DroplessConfig(k=3))},
            True,
            "kind=dropless.: .* k=3",
        ),
        ({"moe": MoEConfig(num_experts=4, expert_dim=8, gate=HierarchicalConfig(k=1))}, True, "kind=hierarchical"),
        (
            {"moe": MoEConfig(num_experts=4, expert_dim=8, conditional=ConditionalConfig())},
            True,
            "model.moe.conditional: .* train without it",
        ),
        ({"moe": moe_of("top2", shared_experts=1)}, True, "model.moe.shared_experts=1: .* train without them"),
    ],
)
def test_what_transformers_cannot_be_is_refused(changes, shared, message):
    with pytest.raises(ValueError, match=message):
        check_huggingface(config_of(**changes), shared=shared)


def test_a_model_too_shallow_for_a_moe_layer_is_a_dense_one():
    moe = MoEConfig(num_experts=4, expert_dim=8, every=4, gate=DroplessConfig(k=3))
    check_huggingface(config_of(moe=moe), shared=True)
