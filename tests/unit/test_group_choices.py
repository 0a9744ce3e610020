"""A group that the command line chooses wins over the recipe; single keys win over both."""

import pytest

from pipeline.config import load_config
from tests.gates import GATES, PAIRS, moe_of


def read(config, path):
    for name in path.split("."):
        config = config[int(name)] if name.isdecimal() else getattr(config, name)
    return config


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["recipes=smoke"], {"train.max_tokens": 450000, "baselines.tiers.0.train.max_tokens": 220000}),
        (["recipes=smoke", "baselines=none"], {"baselines.tiers": []}),
        (["recipes=gshard/t_96l", "baselines=none"], {"baselines.tiers": []}),
        (["recipes=smoke", "baselines=tiered"], {"baselines.tiers.0.up_to": 500}),
        (["recipes=smoke", "baselines=freesoft38"], {"baselines.tiers.0.train.max_tokens": 450000}),
        (["recipes=smoke", "vocab=shared"], {"vocab.source_size": 8000, "vocab.target_size": 8000}),
        (["recipes=m4/moe_8e", "vocab=separate"], {"vocab.target_size": 4000, "vocab.sample_lines": 2000000}),
        (["recipes=smoke", "train=adafactor"], {"train.learning_rate": 0.01, "train.max_tokens": 450000}),
        (["recipes=smoke", "train=adafactor", "train.learning_rate=0.5"], {"train.learning_rate": 0.5}),
        (["recipes=smoke", "batch=packed"], {"batch.shapes.0.rows": 20}),
        (["recipes=smoke", "model=moe"], {"model.dim": 192, "model.moe.num_experts": 8, "model.moe.gate.kind": "top2"}),
        (["recipes=freesoft38/dense", "corpus=sample"], {"corpus.path": "data/sample"}),
        (["recipes=freesoft38/dense", "corpus=freesoft38"], {"corpus.path": "corpora/freesoft38"}),
        (["recipes=backtranslation", "corpus=sample"], {"corpus.add": ["corpora/backtranslated"]}),
        (["recipes=opus100/moe_8e"], {"model.moe.gate.second": "all"}),
        (["recipes=opus100/moe_8e", "gate=top2"], {"model.moe.gate.second": "random", "model.moe.encoder_gate": None}),
        (["recipes=opus100/moe_8e", "gate=top1", "model.moe.gate.jitter=0.2"], {"model.moe.gate.jitter": 0.2}),
        (["recipes=opus100/moe_8e", "regularizer=[eom,z_loss]"], {"model.moe.gate.second": "all"}),
        (["regularizer=[cmr]", "model=moe"], {"model.moe.conditional.budget": 0.8}),
        (["model=moe", "regularizer=[cmr]"], {"model.moe.conditional.budget": 0.8}),
        (["model=fine_grained"], {"model.moe.gate.kind": "topk", "model.moe.gate.k": 8, "model.moe.num_experts": 32}),
        (["model=fine_grained", "gate=sigmoid"], {"model.moe.gate.score": "sigmoid", "model.moe.gate.k": 8}),
        (["gate=sigmoid", "model=fine_grained"], {"model.moe.gate.score": "sigmoid", "model.moe.gate.k": 8}),
        (["gate=topk", "model=fine_grained", "model.moe.gate.k=4"], {"model.moe.gate.k": 4}),
        (["recipes=smoke", "model=fine_grained"], {"model.moe.gate.k": 8, "model.moe.num_experts": 32}),
        (["recipes=opus100/moe_8e", "gate=topk", "model=fine_grained"], {"model.moe.gate.k": 8}),
        (
            ["recipes=m4/moe_8e", "regularizer=[eom,z_loss]"],
            {"model.moe.output_masking": 0.2, "model.moe.z_weight": 1e-3},
        ),
    ],
    ids=" ".join,
)
def test_a_chosen_group_wins_over_the_recipe_and_a_key_over_both(overrides, expected):
    config = load_config(overrides)
    assert {path: read(config, path) for path in expected} == expected


@pytest.mark.parametrize("gate", GATES)
def test_every_gate_is_as_its_file_has_it_on_a_recipe_that_tuned_another_one(gate):
    gates = load_config(["recipes=opus100/moe_8e", f"gate={gate}"]).model.moe.with_pairs(PAIRS)
    assert (gates.gate, gates.encoder_gate) == (moe_of(gate).gate, moe_of(gate).encoder_gate)


def test_a_key_that_the_chosen_gate_does_not_have_is_named():
    with pytest.raises(
        ValueError, match=r"model.moe.gate.second does not exist with model.moe.gate.kind=top1; leave it out"
    ):
        load_config(["recipes=opus100/moe_8e", "gate=top1", "model.moe.gate.second=all"])
