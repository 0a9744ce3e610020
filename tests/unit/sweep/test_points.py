"""Points of a sweep: products, names, equality, and dense models to compare with."""

import json
import logging
from itertools import product

import pytest

from pipeline.config import load_config
from pipeline.model.flops import count_parameters, forward_flops
from pipeline.model.moe.gates.config import NoisyTopKConfig
from pipeline.sweep.config import load_sweep
from pipeline.sweep.counterparts import EVEN, MOST_FLOPS, TOLERANCE, warn_of_unequal, with_counterparts
from pipeline.sweep.equal import check_equal, literal, with_common_baselines
from pipeline.sweep.points import expand, named

SMOKE = ["recipes=smoke", "baselines.tiers=[]"]


def points_of(*overrides):
    return expand(load_sweep([*SMOKE, *overrides]))


def ids(points):
    return [point.id for point in points]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], ["4e_4l"]),
        (["model.moe.num_experts=4,8", "layers=4,8"], ["4e_4l", "4e_8l", "8e_4l", "8e_8l"]),
        (["model.moe.num_experts=range(4,9,4)"], ["4e_4l", "8e_4l"]),
        (["gate=top2,top1", "train.seed=1,2"], ["4e_4l_top2_s1", "4e_4l_top2_s2", "4e_4l_top1_s1", "4e_4l_top1_s2"]),
        (["model.moe.num_experts=0,4", "gate=top2,top1"], ["dense_4l", "4e_4l_top2", "4e_4l_top1"]),
        (["train.learning_rate=1e-3,2e-3"], ["4e_4l_learning_rate-0.001", "4e_4l_learning_rate-0.002"]),
        (["model.encoder_layers=2,3"], ["4e_4l", "4e_3-2l"]),
        (["pairs=[de-en,tr-en]", "train.seed=3"], ["4e_4l"]),
        (["train.seed=1,2", "train.seed=3"], ["4e_4l"]),
        (['grids=[["model.moe.num_experts=4"],["gate=top1"]]'], ["4e_4l", "4e_4l_top1"]),
    ],
)
def test_commas_sweep_and_points_have_short_names(overrides, expected):
    assert ids(points_of(*overrides)) == expected


def test_a_point_is_what_its_overrides_compose():
    four, eight = points_of("model.moe.num_experts=4,8", "layers=8", "pairs=[tr-en]")
    assert eight.overrides == (*SMOKE, *eight.overrides[2:])
    assert eight.config == load_config(
        [*SMOKE, "model.moe.num_experts=8", "model.encoder_layers=4", "model.decoder_layers=4", "pairs=[tr-en]"]
    )
    assert named(four, "runs/mine").config == load_config([*four.overrides, "name=4e_8l", "runtime.runs=runs/mine"]), (
        "what the run will record"
    )


def test_names_are_of_recipes_where_recipes_are_swept():
    words = ["experiment=freesoft38_rehearsal", "corpus.path=anywhere"]
    points = expand(load_sweep(words))
    assert ids(points) == ["dense_s1", "moe_8e_s1", "moe_32e", "moe_8e_12l", "dense_s2", "moe_8e_s2"]
    for point in points:
        seed = point.id.rpartition("_s")[2] if "_s" in point.id else "1"
        recipe = f"recipes=freesoft38/{point.id.removesuffix(f'_s{seed}')}"
        alone = load_config(
            [
                recipe,
                "corpus.path=anywhere",
                f"train.seed={seed}",
                "train.max_tokens=2000000",
                "train.ema=0.988",
                "train.validate_every=150",
            ]
        )
        for part in ("pairs", "corpus", "vocab", "batch", "model", "train", "decode"):
            assert getattr(point.config, part) == getattr(alone, part), (point.id, part)
    check_equal(points)
    assert ids(with_counterparts(points, [])[0]) == ids(points)
    full = expand(load_sweep(["experiment=freesoft38", "corpus.path=anywhere"]))
    assert {point.config.train.max_tokens for point in full} == {12_000_000}
    assert all(point.config.baselines == points[0].config.baselines for point in points)
    assert all(point.config.baselines == full[0].config.baselines for point in full)


def test_the_experiment_has_every_combination_of_experts_and_layers():
    points = expand(load_sweep(["experiment=freesoft38", "corpus.path=anywhere"]))
    check_equal(points)
    seeds = {}
    for point in points:
        model = point.config.model
        experts = model.moe.num_experts
        assert experts == 0 or 2 * model.moe.expert_dim == model.ffn_dim  # the cost of the dense layer
        seeds.setdefault((experts, model.encoder_layers, model.decoder_layers), []).append(point.config.train.seed)
    assert seeds.keys() == {(experts, layers, layers) for experts in (0, 8, 32) for layers in (3, 6)}
    assert all(len(of_system) >= 2 for (experts, *_), of_system in seeds.items() if experts != 8)
    assert seeds[0, 3, 3] == seeds[8, 3, 3] == [1, 2, 3]


@pytest.mark.parametrize(("name", "budget"), [("rates", 10), ("ablations", 4)])
def test_searches_and_ablations_have_a_share_of_the_budget(name, budget):
    points = expand(load_sweep([f"experiment=freesoft38_{name}", "corpus.path=anywhere"]))
    check_equal(points)
    assert {point.config.train.max_tokens for point in points} == {12_000_000 // budget}
    assert not any(point.config.baselines.tiers for point in points)


def test_the_mixtures_of_the_experiment_cost_the_same():
    """All four ways to balance of Shazeer et al.'s Table 6 are there, beside a dense model and every gate with a k."""
    points = expand(load_sweep(["experiment=mixtures", "train.seed=2"]))
    check_equal(points)
    flops = {point.id: forward_flops(point.config.model, target_vocabulary=0) for point in points}
    dense = flops["dense_4l"]
    for point, cost in flops.items():
        assert cost.target_token == pytest.approx(dense.target_token, rel=0.03), point
    gates = [point.config.model.moe.gate for point in points]
    noisy = {(g.importance_weight, g.load_weight) for g in gates if isinstance(g, NoisyTopKConfig)}
    assert noisy == set(product((0.0, 0.01), repeat=2))
    assert {point.config.train.seed for point in points} == {2}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["layers=7"], r"layers=7: these are the layers of encoder and decoder together, .* choose an even number"),
        (["layers=few"], r"layers=few: "),
        (["model.moe.num_experts=4,7"], r"num_experts=7 .* is not divisible by runtime.ep=2"),
        (["model.dropout=interval(0,1)"], r"an interval has no end of points"),
        (["train.warmup_stepss=1,2"], r"did you mean train.warmup_steps"),
        (["train.seed=1,2", "model.moe.num_experts"], r"model.moe.num_experts is no key=value"),
        (["compare=[actve]"], r"compare\[0\]='actve' is not one of active, parameters"),
        (["compare=[active,active]"], r"names something twice"),
        (["retries=-1"], r"retries=-1 must not be negative"),
        (["name=a/b"], r"NAME='a/b' must be a plain directory name"),
        (["grids=[]"], r"grids is empty"),
        (["experiment=freesoft"], r"experiment freesoft does not exist; did you mean freesoft38"),
        (["hydra/launcher=slurm"], r"hydra/launcher=slurm: no such launcher; did you mean submitit_slurm"),
        (["hydra/launcher=joblib", "hydra.launcher.jobs=2"], r"hydra.launcher.jobs=2: not of the chosen launcher"),
        (["hydra.sweep.dir=x"], r"a sweep takes hydra/launcher= and hydra.launcher.\*= alone"),
    ],
)
def test_mistakes_are_named_before_anything_runs(overrides, message):
    with pytest.raises(ValueError, match=message):
        points_of(*overrides)


def test_a_cluster_is_asked_for_where_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"hydra/launcher=submitit_slurm needs sbatch"):
        load_sweep(["hydra/launcher=submitit_slurm"])


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("train.max_tokens=1000,2000", r"train.max_tokens differs between points: 1000 in .*1000, 2000 in .*2000"),
        ("batch.groups_per_step=2,4", r"batch.groups_per_step differs"),
        ("vocab.source_size=3000,4000", r"vocab.source_size differs"),
        ("pairs=[de-en],[tr-en]", r"pairs differs"),
        ("decode.beam=1,4", r"decode.beam differs"),
        ("score.resamples=100,200", r"score.resamples differs"),
        ("corpus.rules.max_chars=100,200", r"corpus.rules.max_chars differs"),
        ("recipes=smoke,export_moe", r"pairs differs between points: .* \(and \d+ more keys\)"),
        ("train.patience=2", r"train.patience=2 of 4e_4l: .*; set train.patience=0"),
    ],
)
def test_equal_means_equal(axis, message):
    with pytest.raises(ValueError, match=message):
        check_equal(points_of(axis))


def test_what_may_differ():
    check_equal(points_of("train.learning_rate=1e-3,2e-3", "model.dim=64,128", "train.seed=1,2"))


def flops(config):
    forward = forward_flops(config.model, config.vocab.target_size)
    return forward.source_token + forward.target_token


def parameters(config):
    sizes = {"source_vocabulary": config.vocab.source_size, "target_vocabulary": config.vocab.target_size}
    return count_parameters(config.model, **sizes, shared=config.vocab.shared).total


@pytest.mark.parametrize(
    "settings",
    [["gate=top2"], ["gate=top1"], ["gate=expert_choice"], ["model.activation=swiglu", "model.norm=rms"]],
    ids=" ".join,
)
def test_counterparts_have_the_flops_and_the_parameters(settings):
    points, left_out = with_counterparts(points_of(*settings, "model.moe.num_experts=4,8"), ["active", "parameters"])
    by_id = {point.id: point for point in points}
    assert not left_out
    for point in points[:2]:
        active, same_size = (by_id[point.compared[role]] for role in ("active", "parameters"))
        for dense in (active, same_size):
            assert dense.config.model.moe.num_experts == 0
            assert dense.config == load_config(dense.overrides)
            assert dense.config.train == point.config.train
        assert flops(active.config) == pytest.approx(flops(point.config), rel=TOLERANCE)
        assert parameters(same_size.config) == pytest.approx(parameters(point.config), rel=TOLERANCE)
        assert active.config.model.ffn_dim % EVEN == 0
    assert ids(points)[2:] == ["dense_4l", "dense_params_4e_4l", "dense_params_8e_4l"]


def test_two_experts_of_half_the_size_cost_the_dense_layer_and_of_the_whole_size_two():
    (_, half), _ = with_counterparts(points_of(), ["active"])
    assert half.config.model.ffn_dim == 512, "the recipe's dense layer; the router adds less than the tolerance"
    (whole, double), _ = with_counterparts(points_of("model.moe.expert_dim=512"), ["active"])
    # by hand: one layer of two has experts, so the mean layer is (512 + 2 * 512) / 2, and 4 / 2 / 2 for the router
    assert double.config.model.ffn_dim == pytest.approx((512 + 2 * 512) / 2 + 1, abs=EVEN)
    assert whole.compared == {"active": double.id}


def test_a_router_that_costs_more_than_the_tolerance_has_a_dense_model_of_its_own():
    points, _ = with_counterparts(points_of("model.moe.num_experts=4,64"), ["active"])
    assert ids(points)[2:] == ["dense_4l", "dense_4l_ffn528"]
    assert flops(points[3].config) == pytest.approx(flops(points[1].config), rel=TOLERANCE)


def test_a_dense_model_that_is_among_the_points_is_not_made_again():
    points, _ = with_counterparts(points_of("model.moe.num_experts=0,4,8", "train.seed=1,2"), ["active"])
    assert len(points) == 6
    assert {point.compared["active"] for point in points if "e_" in point.id and "dense" not in point.id} == {
        "dense_4l_s1",
        "dense_4l_s2",
    }


def test_a_dense_model_that_is_too_dear_is_left_out_with_the_reason():
    points, (reason,) = with_counterparts(points_of("model.moe.num_experts=64"), ["parameters"])
    assert ids(points) == ["64e_4l"]
    assert "dense_params_64e_4l" in reason
    ratio = float(reason.split("at ")[1].split(" times")[0])
    assert ratio > MOST_FLOPS


def test_a_dense_model_by_hand_of_other_flops_is_warned_about(caplog):
    caplog.set_level(logging.WARNING)
    warn_of_unequal(points_of("model.moe.num_experts=0,4"))
    assert not caplog.text
    warn_of_unequal(points_of("model.moe.num_experts=0,4", "model.moe.expert_dim=512"))
    assert (
        "4e_4l is not of equal FLOPs: 2 experts of expert_dim=512 cost a token what a dense layer of 1024"
        in caplog.text
    )
    assert "set model.moe.expert_dim=256, or compare=[active]" in caplog.text
    warn_of_unequal(points_of("model.moe.num_experts=0,4", "model.moe.shared_experts=1"))
    assert "4e_4l is not of equal FLOPs: 3 experts of expert_dim=256 cost a token" in caplog.text


@pytest.mark.parametrize("axis", ["layers=4,8", "model.activation=relu,swiglu", "model.norm=layer,rms"])
def test_bilingual_baselines_are_those_of_the_first_point(axis):
    points = expand(load_sweep(["recipes=smoke", axis, "train.seed=1,2"]))
    assert points[0].config.baselines != points[-1].config.baselines, "a tier takes the rest from its run"
    common = with_common_baselines(points)
    assert all(point.config.baselines == points[0].config.baselines for point in common)
    assert [point.config.model for point in common] == [point.config.model for point in points]
    assert common[-1].config == load_config(common[-1].overrides)
    alike = points_of("train.seed=1,2")
    assert with_common_baselines(alike) == alike


@pytest.mark.parametrize(
    "value", [None, True, 3, 1e-9, 0.5, "a b", "it's", "back\\slash", "[x,y]", "", {"a": [1, {"b": "c"}]}]
)
def test_values_in_the_grammar_of_overrides(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override(f"key={literal(value)}")
    plain = json.loads(json.dumps(override.value(), default=str))
    assert plain == value
