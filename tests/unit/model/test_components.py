"""The components of a model, and what is said of names that it does not have."""

import math

import pytest

from pipeline.model.components import COMPONENTS, KINDS, components_of, is_trainable, kind_of, rate_factor
from pipeline.model.config import ConditionalConfig, ModelConfig, MoEConfig
from pipeline.model.lora import LoraConfig
from pipeline.model.moe.gates.config import GATES
from pipeline.parallel.layout import Layout
from pipeline.parallel.shapes import adapter_shapes, parameter_shapes
from pipeline.train.components import check_components
from pipeline.train.config import TrainConfig

SIZES = {"dim": 8, "ffn_dim": 12, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
MOE = MoEConfig(num_experts=4, expert_dim=4, conditional=ConditionalConfig())
CUT = Layout(table={"H": ("model",), "N": ("model",)}, sizes={"data": 1, "expert": 1, "model": 2})


def shapes_of(moe=MOE):
    return parameter_shapes(ModelConfig(**SIZES, moe=moe), source_vocabulary=5, target_vocabulary=6, shared=False)


def train(**changes):
    values = {"max_steps": 1, "max_tokens": 0, "learning_rate": 1.0, "warmup_steps": 1, "validate_every": 1}
    return TrainConfig(**{**values, **changes})


@pytest.mark.parametrize("gate", GATES)
def test_every_parameter_is_of_one_kind_and_the_numbers_add_up(gate):
    """An attention has 4 weights, a layer 2 or 3 norms of 2 vectors, and half of the layers have experts."""
    shapes = shapes_of(MoEConfig(num_experts=4, expert_dim=4, encoder_gate=GATES[gate]()))
    counts = {kind: sum(kind_of(shape.name) == kind for shape in shapes) for kind in KINDS}
    routers = len(GATES[gate]().router_shapes(4, 8)) + 1  # the decoder has top2
    norms = 2 * (2 * 2 + 1 + 2 * 3 + 1)
    expected = {
        "embeddings": 2,
        "norms": norms,
        "attention": 24,
        "feed_forward": 4,
        "experts": 4,
        "routers": routers,
    }
    assert counts == expected
    assert all(len(components_of(shape.name)) == 1 + (kind_of(shape.name) != "embeddings") for shape in shapes)


def test_a_shared_network_is_a_feed_forward_and_its_gate_a_router():
    assert kind_of("encoder.layers.1.feed_forward.conditional.shared.wi_MH") == "feed_forward"
    assert kind_of("encoder.layers.1.feed_forward.conditional.wc_M") == "routers"
    assert kind_of("decoder.layers.1.feed_forward_norm.weight") == "norms"


def test_components_are_united_and_their_factors_multiplied():
    name = "encoder.layers.0.self_attention.wq_MND"
    assert is_trainable(name, ["norms", "encoder"])
    assert is_trainable(name, "all")
    assert not is_trainable(name, ["norms", "decoder"])
    assert not is_trainable(name, "adapters")
    assert rate_factor(name, {"encoder": 0.5, "attention": 0.25, "decoder": 8.0}) == 0.125
    assert rate_factor("target_embedding_VM", {"encoder": 0.5}) == 1.0


def test_adapters_have_the_sizes_of_both_sides_of_a_weight_and_its_cut_dimensions():
    by_name = {shape.name: shape for shape in adapter_shapes(shapes_of(), 3, ["attention", "feed_forward"])}
    prefix = "decoder.layers.0.cross_attention.adapters"
    assert by_name[f"{prefix}.wq_MND.a_MR"].sizes == (8, 3)
    assert by_name[f"{prefix}.wq_MND.b_RND"].sizes == (3, 2, 4)
    assert by_name[f"{prefix}.wo_NDM.a_NDR"].part(CUT).sizes == (1, 4, 3)
    assert by_name[f"{prefix}.wo_NDM.b_RM"].part(CUT).sizes == (3, 8)
    assert by_name["encoder.layers.0.feed_forward.adapters.wo_HM.a_HR"].part(CUT).sizes == (6, 3)
    assert not [name for name in by_name if ".experts." in name or ".router." in name]
    assert len(by_name) == 2 * (6 * 4 + 2 * 2 + 2 * 2)  # with the shared networks of conditional layers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainable": "norms"}, r"train.trainable='norms' is neither all nor a list, as \[embeddings,norms\]"),
        ({"trainable": []}, r"train.trainable=\[\] trains nothing"),
        ({"trainable": ["norm"]}, f"train.trainable: 'norm' is not one of {', '.join(COMPONENTS)}"),
        ({"learning_rate_factors": {"head": 1.0}}, "train.learning_rate_factors: 'head' is not one of"),
        ({"learning_rate_factors": {"experts": 1.0}}, "factors.experts: set train.expert_learning_rate"),
        ({"learning_rate_factors": {"norms": 0.0}}, "factors.norms=0.0 must be positive.* out of train.trainable"),
        ({"learning_rate_factors": {"norms": math.inf}}, "factors.norms=inf must be positive and finite"),
        ({"trainable": ["norms"]}, "the other components would keep random weights; name a trained model"),
        ({"lora": LoraConfig()}, "train.lora: adapters belong to a trained model; name it by train.initialize_from"),
        ({"lora": LoraConfig(), "trainable": ["norms"]}, "train.trainable=.*with train.lora adapters train alone"),
    ],
)
def test_settings_without_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        train(**changes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "train.lora.rank=0 must be at least 1"),
        ({"alpha": 0.0}, "train.lora.alpha=0.0 must be positive"),
        ({"dropout": 1.0}, r"train.lora.dropout=1.0 must lie in \[0, 1\)"),
        ({"targets": ["attention", "experts"]}, "train.lora.targets: experts cannot have adapters; use attention"),
        ({"targets": ["q_proj"]}, r"train.lora.targets=\['q_proj'\]: give attention, feed_forward or both"),
        ({"targets": []}, r"train.lora.targets=\[\]: give attention"),
    ],
)
def test_adapters_without_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        LoraConfig(**settings)


EVERY = MoEConfig(num_experts=4, expert_dim=4, every=1)
DROPPING = LoraConfig(dropout=0.1)


@pytest.mark.parametrize(
    ("moe", "layout", "changes", "message"),
    [
        (MoEConfig(), None, {"trainable": ["experts"]}, "train.trainable: no parameter of experts is there to train"),
        (
            MOE,
            None,
            {"trainable": ["norms"], "learning_rate_factors": {"attention": 0.5}},
            "factors: no parameter of att",
        ),
        (EVERY, None, {"lora": LoraConfig()}, "train.lora.targets: the model has no feed_forward outside of experts"),
        (
            MOE,
            CUT,
            {"lora": DROPPING},
            "train.lora.dropout=0.1: the layout cuts H.*set it to 0, or train without runtime.mp",
        ),
    ],
)
def test_what_the_model_or_the_layout_does_not_have_is_refused(moe, layout, changes, message):
    config = train(**changes, initialize_from="run")
    with pytest.raises(ValueError, match=message):
        check_components(config, ModelConfig(**SIZES, moe=moe), layout)


def test_what_fits_is_accepted():
    model = ModelConfig(**SIZES, moe=MOE)
    parts = train(trainable=["experts", "encoder"], initialize_from="run", learning_rate_factors={"encoder": 2.0})
    check_components(parts, model, CUT)
    check_components(train(lora=DROPPING, initialize_from="run", learning_rate_factors={"attention": 2.0}), model)
    check_components(train(lora=LoraConfig(), initialize_from="run"), model, CUT)
