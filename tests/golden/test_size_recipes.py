"""The recipes in recipes/sizes have the figures of the publications that they name, and their mixtures of experts cost
what their dense models cost."""

import csv
from functools import cache

import pytest

from pipeline.config import ROOT, RunConfig, load_config
from pipeline.model.flops import count_parameters
from pipeline.sweep.config import load_sweep
from pipeline.sweep.counterparts import EVEN, with_counterparts
from pipeline.sweep.equal import check_equal
from pipeline.sweep.points import expand
from tests.golden.test_published_recipes import built

DENSE = ("small", "base", "big")
with (ROOT / "recipes" / "sizes" / "expected.csv").open(encoding="utf-8", newline="") as stream:
    PARAMETERS = {row["recipe"]: int(row["parameters"]) for row in csv.DictReader(stream)}


@cache
def config_of(recipe: str) -> RunConfig:
    return load_config([f"recipes=sizes/{recipe}"])


@pytest.mark.parametrize("recipe", PARAMETERS)
def test_parameters(recipe: str) -> None:
    """The table has every recipe of the folder, in the order of `make plan`, and the parameters of the built model."""
    assert {path.stem for path in (ROOT / "recipes" / "sizes").glob("*.yaml")} == set(PARAMETERS)
    vocab = config_of(recipe).vocab
    total = built(config_of(recipe).model, vocab.source_size, vocab.target_size, shared=vocab.shared)
    assert total == PARAMETERS[recipe]


@pytest.mark.parametrize(("recipe", "published"), [("base", 65e6), ("big", 213e6)])
def test_parameters_are_those_of_table_3(recipe: str, published: float) -> None:
    """With a shared vocabulary of "about 37000" (arXiv:1706.03762, Table 3). 2,000 more are 1.6 % of base."""
    sizes = {"source_vocabulary": 37_000, "target_vocabulary": 37_000}
    total = count_parameters(config_of(recipe).model, **sizes, shared=True).total
    assert total == pytest.approx(published, rel=0.04)


def test_batches_and_rates_are_those_of_the_publications() -> None:
    """fairseq's --max-tokens 4096 and its 128 times 3584; 25,000 tokens and (512 · 4000)^-0.5 of Transformer-base."""
    tokens = {}
    for recipe in DENSE:
        batch = config_of(recipe).batch
        tokens[recipe] = batch.groups_per_step * batch.shapes[-1].rows * batch.shapes[-1].target
        assert batch.shapes[0].rows * batch.shapes[0].source == batch.shapes[-1].rows * batch.shapes[-1].source
    assert (tokens["small"], tokens["big"]) == (4096, 128 * 3584)
    assert tokens["base"] == pytest.approx(25_000, rel=0.02)
    train = {recipe: config_of(recipe).train for recipe in DENSE}
    assert train["base"].learning_rate == pytest.approx((512 * train["base"].warmup_steps) ** -0.5, rel=0.01)
    for recipe in ("base", "big"):  # 100,000 steps
        assert train[recipe].max_tokens / tokens[recipe] == pytest.approx(100_000, rel=0.02)


@pytest.mark.parametrize("recipe", DENSE)
def test_experts_cost_what_the_dense_model_costs(recipe: str) -> None:
    """The solver of sweeps takes the dense recipe for the mixture's equal, so nothing but the experts differs.

    The size of an expert is the multiple of 8 nearest to equal FLOPs with the router counted, here within 0.2 %.
    """
    points = expand(load_sweep([f"recipes=sizes/{recipe},sizes/{recipe}_moe"]))
    check_equal(points)
    dense, moe = points
    matched, left_out = with_counterparts(points, ["active"])
    assert [point.id for point in matched] == [dense.id, moe.id]
    assert matched[1].compared == {"active": dense.id}
    assert not left_out
    assert moe.token_flops == pytest.approx(dense.token_flops, rel=0.002)
    assert moe.config.model.moe.expert_dim % EVEN == 0
    assert moe.config.baselines == dense.config.baselines


def test_baselines_are_the_recipes_of_their_sizes() -> None:
    """From the second tier on a tier is a dense recipe, but for its patience and, as a cap, the budget of the run."""
    for run in DENSE:
        baselines = config_of(run).baselines
        assert [tier.up_to for tier in baselines.tiers] == [20_000, 300_000, 30_000_000, 0]
        for recipe, tier in zip(("", *DENSE), baselines.tiers, strict=True):
            assert tier.train.patience == 10
            assert tier.train.max_tokens == config_of(run).train.max_tokens
            if not recipe:
                continue
            config = config_of(recipe)
            assert (tier.batch.shapes, tier.batch.groups_per_step) == (
                config.batch.shapes,
                config.batch.groups_per_step,
            )
            assert (tier.vocab.source_size, tier.vocab.shared) == (config.vocab.source_size, True)
            sizes = ("dim", "ffn_dim", "heads", "head_dim", "encoder_layers", "decoder_layers", "dropout")
            assert [getattr(tier.model, name) for name in sizes] == [getattr(config.model, name) for name in sizes]
            rates = ("learning_rate", "warmup_steps", "weight_decay", "precision", "validate_every", "optimizer")
            assert [getattr(tier.train, name) for name in rates] == [getattr(config.train, name) for name in rates]
