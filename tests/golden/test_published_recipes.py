"""Parameters of the recipes of published systems: the model itself, built without memory, against formulas by hand and
the papers' tables (GShard, arXiv:2006.16668, Table 1; Mesh-TensorFlow, arXiv:1811.02084, Table 3)."""

import pytest
import torch

from pipeline.config import load_config
from pipeline.model.config import ModelConfig
from pipeline.model.flops import count_parameters
from pipeline.model.transformer import Transformer

# experts a layer, layers, weights as printed
GSHARD = {
    "moe_2048e_36l": (2048, 36, 600e9),
    "moe_2048e_12l": (2048, 12, 200e9),
    "moe_512e_36l": (512, 36, 150e9),
    "moe_512e_12l": (512, 12, 50e9),
    "moe_128e_36l": (128, 36, 37e9),
    "moe_128e_12l": (128, 12, 12.5e9),
    "moe_2048e_60l": (2048, 60, 1e12),
}
# feed-forward size: heads, weights as printed
MESH_TF = {
    2048: (4, 0.15e9),
    4096: (8, 0.24e9),
    8192: (16, 0.42e9),
    16384: (32, 0.77e9),
    32768: (64, 1.48e9),
    65536: (128, 2.89e9),
}


def built(model: ModelConfig, source: int, target: int) -> int:
    """Parameters of our model, counted on the meta device."""
    with torch.device("meta"):
        model_ = Transformer(model, source_vocabulary=source, target_vocabulary=target, shared=False, max_positions=16)
    return sum(parameter.numel() for parameter in model_.parameters())


def by_hand(*, layers: int, experts: int, hidden: int, keys: int, vocabularies: int) -> int:
    """Half encoder, half decoder; every second feed-forward network is a MoE; two numbers a dimension of each norm."""
    M = 1024
    attention = 4 * M * keys
    attentions = layers // 2 + 2 * (layers // 2)
    networks = layers // 2 * (1 + experts) if experts else layers
    norms = 2 * M * (attentions + layers + 2)
    return attentions * attention + networks * 2 * M * hidden + (layers // 2 * M * experts) + norms + vocabularies * M


def counted(recipe: str) -> int:
    """By the model and by the formula that runs are planned with, which agree."""
    config = load_config([f"recipes={recipe}"])
    sizes = config.vocab.source_size, config.vocab.target_size
    found = count_parameters(config.model, source_vocabulary=sizes[0], target_vocabulary=sizes[1], shared=False).total
    assert found == built(config.model, *sizes)
    return found


@pytest.mark.parametrize("name", GSHARD)
def test_gshard(name: str) -> None:
    """The printed 37B of model 5 is below its experts alone, 2,304 of 2 · 1024 · 8192 = 38.7B; hence 7 %."""
    experts, layers, printed = GSHARD[name]
    found = counted(f"gshard/{name}")
    assert found == by_hand(layers=layers, experts=experts, hidden=8192, keys=16 * 128, vocabularies=96_000)
    assert found == pytest.approx(printed, rel=0.07)


def test_gshard_dense() -> None:
    """T(96L) has 2.3B weights with keys of 64."""
    found = counted("gshard/t_96l")
    assert found == by_hand(layers=96, experts=0, hidden=8192, keys=16 * 64, vocabularies=96_000)
    assert found == pytest.approx(2.3e9, abs=0.05e9)


@pytest.mark.parametrize("hidden", MESH_TF)
def test_mesh_tensorflow(hidden: int) -> None:
    heads, printed = MESH_TF[hidden]
    found = counted(f"mesh_tf/ff_{hidden}")
    assert found == by_hand(layers=12, experts=0, hidden=hidden, keys=heads * 128, vocabularies=2 * 32_768)
    assert found == pytest.approx(printed, abs=0.01e9)


def test_shazeer() -> None:
    """One layer of 512 experts a side, 8.6 billion of its weights; nothing of the paper's own model is as large."""
    config = load_config(["recipes=shazeer2017/multilingual"])
    experts = 2 * 512 * 2 * 512 * 8192
    assert 0 < built(config.model, config.vocab.source_size, config.vocab.target_size) - experts < 100e6


@pytest.mark.parametrize("recipe", ["opus100/moe_8e", "m4/moe_8e"])
def test_small_published_recipes(recipe: str) -> None:
    """6 + 6 layers of 512 and 2048, 8 experts in every second."""
    model = load_config([f"recipes={recipe}"]).model
    assert (model.dim, model.ffn_dim, model.encoder_layers, model.decoder_layers) == (512, 2048, 6, 6)
    assert (model.moe.num_experts, model.moe.every, model.num_moe_layers(6)) == (8, 2, 3)
