"""The record of a gate agrees with its router and with the documentation."""

import re
from dataclasses import replace

import pytest

from pipeline.config import ROOT, load_config
from pipeline.model.config import ModelConfig
from pipeline.model.moe.gates.capacity import router_outputs
from pipeline.model.moe.gates.config import GATES as RECORDS
from pipeline.model.moe.gates.config import DroplessConfig
from pipeline.model.moe.gates.top_k_config import TopKConfig
from pipeline.model.moe.routers import build_router
from pipeline.schema import build
from tests.gates import GATES, gates_where, moe_of


def page(name):
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_every_kind_has_a_file_of_its_name():
    assert {*RECORDS} == {*GATES} - {"prioritized", "sigmoid", "node_limited"}  # their kinds are top2 and topk


@pytest.mark.parametrize("gate", GATES)
def test_parameters_of_the_router(gate):
    config = moe_of(gate).gate_of(decoder=False)
    router = build_router(6, 8, config, with_z=False)
    shapes = {name: tuple(parameter.shape) for name, parameter in router.named_parameters()}
    assert shapes == config.router_shapes(8, 6)
    assert 6 * router_outputs(config, 8) == sum(p.numel() for p in router.parameters() if p.shape[-1] == 6)


def test_the_page_on_gates_names_all_of_them():
    rows = re.findall(r"^\| `(\w+)`", page("moe").partition("regularizer=")[0], re.MULTILINE)
    assert sorted(rows) == GATES
    names = re.findall(r"`(\w+)`", re.search(r"\(((?:`\w+`(?:, )?)+)\)", page("moe"))[1])
    assert {*names} == {*GATES} - {*gates_where(lambda gate: not gate.encoder_only)}
    assert re.findall(r"`(\w+)` looks at them", page("moe")) == [gate for gate in GATES if moe_of(gate).cautions()]


def test_gates_that_the_page_on_pruning_names():
    rows = re.findall(r"^\| (`.+`) \| (can be pruned|refused)", page("pruning"), re.MULTILINE)
    verdicts = {name: verdict for names, verdict in rows for name in re.findall(r"`(\w+)`", names)}
    prunable = sorted(name for name, verdict in verdicts.items() if verdict == "can be pruned")
    assert prunable == gates_where(lambda gate: not gate.unprunable)
    assert {*verdicts} <= {*GATES}


def test_gates_that_the_page_on_export_names():
    (names,) = re.findall(r"^\| MoE with a gate (.*?) \| `Nllb", page("export"), re.MULTILINE)
    kinds = {*re.findall(r"`(\w+)`", names)}
    assert kinds == {*gates_where(lambda gate: not gate.unexportable)}


def test_sigmoid_is_top_k_with_other_scores_and_a_bias_in_place_of_a_loss():
    gate = load_config(["gate=sigmoid"]).model.moe.gate
    assert gate == TopKConfig(score="sigmoid", capacity_factor=0.0, balance_weight=0.0, bias_rate=0.001)


def test_node_limited_is_sigmoid_with_a_limit_of_nodes():
    limited, sigmoid = (load_config([f"gate={gate}"]).model.moe.gate for gate in ("node_limited", "sigmoid"))
    assert limited == replace(sigmoid, expert_nodes=2, max_nodes=1)
    assert (limited.limits_nodes, sigmoid.limits_nodes) == (True, False)
    softmax = TopKConfig(expert_nodes=2)
    assert "nodes" in softmax.unexportable
    assert "nodes" in softmax.unprunable
    assert not TopKConfig(expert_nodes=2, max_nodes=2).unexportable


@pytest.mark.parametrize(
    ("k", "expert_nodes", "max_nodes", "message"),
    [
        (2, 3, 1, r"expert_nodes=3 does not divide model.moe.num_experts=8; choose one of 1, 2, 4"),
        (2, 0, 1, r"expert_nodes=0 does not divide"),
        (2, 4, 5, r"max_nodes=5 must lie in 1..4, the number of expert_nodes"),
        (2, 4, 0, r"max_nodes=0 must lie in 1..4"),
        (
            4,
            4,
            3,
            r"max_nodes=3 with k=4: .* a whole number of at most 2, .* choose max_nodes=2 or 4 \(4 is no limit\)",
        ),
        (4, 4, 1, r"max_nodes=1 with k=4: .* choose max_nodes=2 or 4"),
        (5, 4, 2, r"max_nodes=2 with k=5: .* choose max_nodes=4 \(4 is no limit\)"),
    ],
)
def test_nodes_that_do_not_fit_are_refused(k, expert_nodes, max_nodes, message):
    nodes = {"k": k, "expert_nodes": expert_nodes, "max_nodes": max_nodes}
    with pytest.raises(ValueError, match=r"model\.moe\.gate\." + message):
        load_config(["gate=topk", *(f"model.moe.gate.{name}={value}" for name, value in nodes.items())])


def test_records_name_nodes_only_if_experts_are_on_several():
    """Otherwise keys of stages would be others than those of earlier versions."""
    for nodes, expected in (((1, 1), set()), ((4, 1), {"expert_nodes"}), ((4, 2), {"expert_nodes", "max_nodes"})):
        names = dict(zip(("expert_nodes", "max_nodes"), nodes, strict=True))
        config = load_config(["gate=topk", *(f"model.moe.gate.{name}={value}" for name, value in names.items())])
        for record in (config.model.to_json(), config.to_json()["model"]):
            assert names.keys() & record["moe"]["gate"].keys() == expected
            assert build(ModelConfig, record) == config.model


def test_one_choice_needs_weights_that_are_not_normalised():
    """The models of 0.2 with one choice had such weights. They still translate."""
    for gate in gates_where(lambda gate: hasattr(gate, "normalize")):
        with pytest.raises(
            ValueError, match=r"gate: with k=1 and normalize=true .* set model.moe.gate.normalize=false"
        ):
            load_config([f"gate={gate}", "model.moe.gate.k=1"])
        config = load_config([f"gate={gate}", "model.moe.gate.k=1", "model.moe.gate.normalize=false"])
        assert not config.model.moe.gate.normalize
    with pytest.raises(ValueError, match=r"moe.encoder_gate: with k=1 and normalize=true"):
        load_config(["model.moe.encoder_gate={kind: dropless, k: 1}"])
    for config_type in (TopKConfig, DroplessConfig):
        assert "not normalised" in config_type(normalize=False).unexportable
        assert not config_type().unexportable


def test_records_name_weights_only_if_they_are_not_normalised():
    """Otherwise keys of stages would be others than those of earlier versions."""
    for gate, expected in (("topk", {}), ("dropless", {}), ("dropless normalize", {"normalize": False})):
        name, *off = gate.split()
        config = load_config([f"gate={name}", *(f"model.moe.gate.{key}=false" for key in off)])
        for record in (config.model.to_json(), config.to_json()["model"]):
            assert {k: v for k, v in record["moe"]["gate"].items() if k == "normalize"} == expected
            assert build(ModelConfig, record) == config.model


def test_records_name_shared_experts_only_if_there_are_any():
    """Otherwise keys of stages would be others than those of earlier versions."""
    for config, expected in ((load_config([]), None), (load_config(["model.moe.shared_experts=2"]), 2)):
        for record in (config.model.to_json(), config.to_json()["model"]):
            assert record["moe"].get("shared_experts") == expected
