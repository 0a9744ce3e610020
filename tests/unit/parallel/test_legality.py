"""Errors name the nearest legal sizes before anything runs, and warnings name work that several processes repeat."""

import logging
import subprocess
import sys
from dataclasses import replace

import pytest

from pipeline.config import PLACE, ROOT, load_config
from pipeline.corpus.languages import LangPair
from pipeline.dag.system import bilingual
from pipeline.model.flops import forward_flops, forward_parts
from pipeline.parallel.layout import Layout, layout_of
from pipeline.parallel.legality import cautions, check_vocabulary

CUT = ["layout=model", "runtime.ep=1", "runtime.mp=2"]
FOUR = ["layout=model", "runtime.ep=1", "runtime.processes=4", "runtime.mp=4"]
SIX_HEADS = ["model.dim=192", "model.heads=6"]
NO_BASELINES = "baselines.tiers=[]"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [*FOUR, "model.heads=2", "model.dim=6", "model.moe.num_experts=0"],  # 4 divides no divisor of 6
            r"^model.heads=2 .* choose a number of processes that divides 2$",
        ),
        (
            ["layout=model", "runtime.ep=1", "runtime.processes=3", "runtime.mp=3", *SIX_HEADS, "model.ffn_dim=1024"],
            r"model.ffn_dim=1024 \(H of wi_MH\) is not divisible by runtime.mp=3, the axis model; choose 1023 or 1026",
        ),
        (
            [*CUT, "regularizer=[cmr]", "model.moe.every=1", "model.ffn_dim=767"],  # of the shared network
            r"model.ffn_dim=767 \(H of wi_MH\) .* choose 766 or 768",
        ),
        ([*CUT, "model.moe.expert_dim=383"], r"expert_dim=383 \(H of wi_EMH\) .* choose 382 or 384"),
        ([*CUT, "vocab.target_size=4001"], r"vocab.target_size=4001 \(V of embedding_VM\) .* choose 4000 or 4002"),
        ([*CUT, "vocab.source_size=1"], r"vocab.source_size=1 \(V of embedding_VM\) .* choose 2"),
        (
            [*CUT, "vocab=shared", "vocab.source_size=4001", "vocab.target_size=4001"],
            r"vocab.source_size and vocab.target_size=4001 .* choose 4000 or 4002",
        ),
        (
            ["runtime.processes=3", "runtime.ep=3", "batch.groups_per_step=3", "model.moe.num_experts=2"],
            r"num_experts=2 \(E of wi_EMH\) is not divisible by runtime.ep=3, the axis expert; choose 3",
        ),
        (
            [
                "gate=hierarchical",
                "model.moe.num_experts=10",
                "runtime.processes=4",
                "runtime.ep=4",
                "batch.groups_per_step=4",
            ],
            r"choose 8 or 12$",
        ),
        (
            [*CUT, "runtime.processes=8", "batch.groups_per_step=6"],
            r"groups_per_step=6 \(G of x_GSM\) is not divisible by the 4 processes of data and expert; choose 4 or 8",
        ),
        (
            ["layout.E=null", "model.moe.num_experts=7", "runtime.decode_experts=sharded"],
            r"num_experts=7 is not divisible by runtime.ep=2, .* or runtime.decode_experts=replicated",
        ),
        (["runtime.mp=0"], r"runtime.mp=0 must be at least 1"),
        (["layout.H=model"], r"layout.H names something new; add it with a plus: \+layout.H=model"),
        (["layout.G=3"], r"layout.G=3 must be of type str or list, not int"),
        (["layout.G=[1]"], r"layout.G\[0\]=1 must be of type str"),
        (["layout=modle"], r"layout modle does not exist; did you mean model\?"),
    ],
)
def test_what_cannot_be_cut_is_named_with_its_remedy(overrides, message):
    """test_layouts_docs.py tests the other errors, which docs/layouts.md quotes."""
    with pytest.raises(ValueError, match=message):
        load_config([*overrides, NO_BASELINES])


@pytest.mark.parametrize(
    "overrides",
    [
        CUT,
        [*CUT, "runtime.processes=4", "runtime.ep=2"],
        [*FOUR, "model.heads=8"],
        [*CUT, "model.moe.every=1", "model.ffn_dim=767"],  # there is no such network
    ],
)
def test_what_can_be_cut_changes_nothing_else(overrides):
    """The layout does not change baselines either, because a bilingual model has one process."""
    config = load_config(overrides)
    plain = load_config([override for override in overrides if override.startswith("model.")])
    assert replace(config, **{part: getattr(plain, part) for part in PLACE}) == plain
    assert config.layout["H"] == "model"
    system = bilingual(LangPair("de", "en"), config.baselines.tiers[0], config.runtime)
    assert layout_of(system.layout, system.runtime).world == 1


def test_letters_are_added_and_left_out():
    assert load_config(["layout.E=null"]).layout == {"G": ["data", "expert"], "E": None}
    assert load_config(["~layout.E"]).layout == {"G": ["data", "expert"]}
    config = load_config(["+layout.N=model", "layout.E=null", "layout.G=data", "runtime.ep=1", "runtime.mp=2"])
    assert dict(layout_of(config.layout, config.runtime).table) == {"G": ("data",), "N": ("model",)}


def test_a_vocabulary_that_its_text_made_smaller_is_held_against_the_layout_too():
    config = load_config(["layout=model", "runtime.ep=1", "runtime.mp=2", "vocab.source_size=3000"])
    layout = layout_of(config.layout, config.runtime)
    check_vocabulary(layout, config.vocab, source_size=2998, target_size=1000)
    message = r"vocab.source_size=3000: the text has pieces for 2997 alone .* choose 2996"
    with pytest.raises(ValueError, match=message):
        check_vocabulary(layout, config.vocab, source_size=2997, target_size=1000)
    other_vocab = replace(config.vocab, from_run="known")
    with pytest.raises(ValueError, match=r"from_run=known: the vocabulary has 2997 pieces .*; set runtime.mp=1"):
        check_vocabulary(layout, other_vocab, source_size=2997, target_size=1000)
    whole = load_config([])
    check_vocabulary(layout_of(whole.layout, whole.runtime), whole.vocab, source_size=2997, target_size=999)


def test_it_is_known_without_torch():
    code = "import sys, pipeline.config, pipeline.parallel.legality; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def said(caplog, *overrides):
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        load_config(overrides)
    return [record.getMessage() for record in caplog.records]


def test_what_is_replicated_is_said_once_with_the_factor(caplog):
    (text,) = said(caplog, "runtime.ep=1", "runtime.mp=2", "+layout.H=model", "+layout.V=model")
    assert "attention is computed 2 times over (neither G nor N is cut over model), " in text
    share = int(text.split("is cut over model), ")[1].split(" %")[0])
    whole = float(text.split("the whole step has ")[1].split()[0])
    assert whole == pytest.approx(1 + share / 100, abs=0.02)  # the router is the rest
    assert "feed-forward" not in text


def test_gshard_replicates_nothing_and_the_model_layout_nothing_expensive(caplog):
    assert said(caplog) == said(caplog, *CUT) == said(caplog, *CUT, "runtime.processes=4", "runtime.ep=2") == []
    (text,) = said(caplog, "runtime.ep=1", "runtime.mp=2")
    assert text.endswith("the whole step has 2 times one device's FLOPs")
    (text,) = said(caplog, "layout.G=data")
    assert "the dense feed-forward is computed 2 times over (neither G nor H is cut over expert)" in text
    assert "each expert" not in text


def test_routing_is_warned_of_where_there_are_many_experts(caplog):
    many = ["model.moe.num_experts=512", "model.moe.expert_dim=64"]
    (text,) = said(caplog, *CUT, *many)
    assert "routing is computed 2 times over (G is not cut over model)" in text


def test_kinds_of_work_add_up_to_the_whole():
    config = load_config(["regularizer=[cmr]", "gate=hierarchical"])
    parts, whole = forward_parts(config.model, 4000), forward_flops(config.model, 4000)
    shape = config.batch.shapes[-1]
    assert sum(part.of_shape(shape) for part in parts.values()) == pytest.approx(whole.of_shape(shape), rel=1e-12)
    assert set(parts) == {"attention", "dense", "router", "experts", "logits"}
    alone = Layout.gshard(1, 1)
    assert cautions(alone, model=config.model, shape=shape, target_vocabulary=4000) == []
