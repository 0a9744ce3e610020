"""Parameters of the recipes of published systems (GShard, arXiv:2006.16668, Table 1; Mesh-TensorFlow, arXiv:1811.02084,
Table 3).

The model is built without memory, and compared with formulas by hand and with the papers' tables.
"""

import csv

import pytest
import torch

from pipeline.config import ROOT, RunConfig, load_config
from pipeline.model.config import ModelConfig
from pipeline.model.flops import count_parameters
from pipeline.model.transformer import Transformer


def expected(group: str) -> list[dict[str, str]]:
    """Return the rows of the table next to the recipes: our counts, and published figures."""
    with (ROOT / "recipes" / group / "expected.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


GSHARD, MESH_TF = expected("gshard"), expected("mesh_tf")


def recipe_of(row: dict[str, str]) -> str:
    return row["recipe"]


def built(model: ModelConfig, source: int, target: int, *, shared: bool = False) -> int:
    """Count the parameters of our model on the meta device."""
    sizes = {"source_vocabulary": source, "target_vocabulary": target}
    with torch.device("meta"):
        transformer = Transformer(model, **sizes, shared=shared, max_positions=16)
    return sum(parameter.numel() for parameter in transformer.parameters())


def by_hand(*, layers: int, experts: int, hidden: int, keys: int, vocabularies: int) -> int:
    """Count by hand: half encoder, half decoder, every second feed-forward network a MoE, norms with 2 · M numbers."""
    M = 1024
    attention = 4 * M * keys
    attentions = layers // 2 + 2 * (layers // 2)
    networks = layers // 2 * (1 + experts) if experts else layers
    norms = 2 * M * (attentions + layers + 2)
    return attentions * attention + networks * 2 * M * hidden + (layers // 2 * M * experts) + norms + vocabularies * M


def counted(config: RunConfig) -> int:
    """Count by the model and by the formula of the planner, which must agree."""
    sizes = config.vocab.source_size, config.vocab.target_size
    total = count_parameters(config.model, source_vocabulary=sizes[0], target_vocabulary=sizes[1], shared=False).total
    assert total == built(config.model, *sizes)
    return total


@pytest.mark.parametrize("row", GSHARD, ids=recipe_of)
def test_gshard(row: dict[str, str]) -> None:
    """Parameters are those of the paper within 7 %: it prints 37B for model 5, whose experts alone have 38.7B.

    These are 2,304 experts of 2 · 1024 · 8192. T(96L) has its 2.3B with keys of 64.
    """
    layers, experts = int(row["layers"]), int(row["experts"])
    keys = 16 * (128 if experts else 64)
    config = load_config([f"recipes=gshard/{row['recipe']}"])
    total = counted(config)
    assert total == by_hand(layers=layers, experts=experts, hidden=8192, keys=keys, vocabularies=96_000)
    assert total == int(row["parameters"])
    assert total == pytest.approx(float(row["published_parameters"]), rel=0.07 if experts else 0.02)
    if row["published_batch_tokens"]:
        batch = config.batch
        tokens = batch.groups_per_step * batch.shapes[0].rows * batch.shapes[0].source
        assert tokens == pytest.approx(float(row["published_batch_tokens"]), rel=0.05)
        assert batch.groups_per_step == experts or not experts  # a group for each core


@pytest.mark.parametrize("row", MESH_TF, ids=recipe_of)
def test_mesh_tensorflow(row: dict[str, str]) -> None:
    hidden, keys = int(row["ffn_dim"]), 128 * int(row["heads"])
    total = counted(load_config([f"recipes=mesh_tf/{row['recipe']}"]))
    assert total == by_hand(layers=12, experts=0, hidden=hidden, keys=keys, vocabularies=2 * 32_768)
    assert total == int(row["parameters"])
    assert total == pytest.approx(float(row["published_parameters"]), abs=0.01e9)


def test_shazeer() -> None:
    """One layer of 512 experts on each side has 8.6 billion weights. All other weights are fewer than 100 million."""
    config = load_config(["recipes=shazeer2017/multilingual"])
    experts = 2 * 512 * 2 * 512 * 8192
    assert 0 < built(config.model, config.vocab.source_size, config.vocab.target_size) - experts < 100e6


@pytest.mark.parametrize("recipe", ["opus100/moe_8e", "m4/moe_8e"])
def test_small_published_recipes(recipe: str) -> None:
    """The models have 6 + 6 layers of 512 and 2048, and 8 experts in every second layer."""
    model = load_config([f"recipes={recipe}"]).model
    assert (model.dim, model.ffn_dim, model.encoder_layers, model.decoder_layers) == (512, 2048, 6, 6)
    assert (model.moe.num_experts, model.moe.every, model.num_moe_layers(6)) == (8, 2, 3)
