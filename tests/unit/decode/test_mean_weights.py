"""Models have mean weights if they compute alike. Settings of training alone may differ."""

import pytest

from pipeline.decode.mean_weights import check_mean
from pipeline.model.config import ConditionalConfig, ModelConfig, MoEConfig
from pipeline.model.moe.gates.config import DroplessConfig, ExpertChoiceConfig, Top1Config, Top2Config, TopKConfig
from pipeline.model.moe.gates.task_config import TaskConfig

SIZES = {"dim": 16, "ffn_dim": 32, "heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1}
BY_TASK = TaskConfig(pairs="de:en fr:en")


def model(moe=None, **changes):
    return ModelConfig(**{**SIZES, **changes}, moe=MoEConfig(num_experts=4, expert_dim=8, **(moe or {})))


OTHERWISE = [
    (model(), model(heads=2, head_dim=4), "model.heads is 2 in b, and 4 in a"),
    (model(), model(activation="swiglu"), "model.activation is swiglu in b, and relu in a"),
    (model(), model(norm="rms"), "model.norm is rms in b, and layer in a"),
    (model(), model({"output_scale": 0.8}), "model.moe.output_scale is 0.8 in b, and 1.0 in a"),
    (model(), model({"conditional": ConditionalConfig()}), "model.moe.conditional is on in b, and off in a"),
    (model(), model({"gate": Top1Config()}), "model.moe.gate.kind is top1 in b, and top2 in a"),
    (model(), model({"encoder_gate": Top1Config()}), "model.moe.encoder_gate.kind is top1 in b, and top2 in a"),
    (model({"gate": TopKConfig(k=1)}), model({"gate": TopKConfig(k=2)}), "model.moe.gate.k is 2 in b, and 1 in a"),
    (
        model({"gate": TopKConfig()}),
        model({"gate": TopKConfig(bias_rate=0.1)}),
        "model.moe.gate.bias_rate is more than 0 in b, and None in a",
    ),
    (
        model({"gate": BY_TASK}),
        model({"gate": TaskConfig(pairs="fr:en de:en")}),
        "model.moe.gate.pairs is fr:en de:en in b, and de:en fr:en in a",
    ),
    (
        model({"encoder_gate": ExpertChoiceConfig(capacity_factor=1.0)}),
        model({"encoder_gate": ExpertChoiceConfig(capacity_factor=2.0)}),
        "model.moe.encoder_gate.capacity_factor is 2.0 in b, and 1.0 in a",
    ),
]


@pytest.mark.parametrize(("first", "second", "message"), OTHERWISE)
def test_models_that_compute_otherwise_have_no_mean(first, second, message):
    with pytest.raises(ValueError, match=rf"^decode.combine=weights: {message}; take runs that .*, or combine=linear$"):
        check_mean(first, second, "a", "b")


ALIKE = [
    (model(), model(dropout=0.3)),
    (model(), model(head_dim=4)),
    (model(), model({"output_masking": 0.2, "dispatch": "einsum", "z_weight": 0.1})),
    (model(), model({"gate": Top2Config(capacity_factor=2.0, balance_weight=0.0, second="all")})),
    (model(), model({"encoder_gate": Top2Config()})),
    (model({"gate": TopKConfig(bias_rate=0.1)}), model({"gate": TopKConfig(bias_rate=0.2)})),
    (model({"conditional": ConditionalConfig()}), model({"conditional": ConditionalConfig(weight=0.5, drop=0.2)})),
    (ModelConfig(**SIZES), ModelConfig(**SIZES, moe=MoEConfig(expert_dim=8, gate=DroplessConfig()))),
]


@pytest.mark.parametrize(("first", "second"), ALIKE)
def test_models_that_differ_in_their_training_alone_have_one(first, second):
    check_mean(first, second, "a", "b")
