"""The record of a gate agrees with its router and with the documentation."""

import re

import pytest

from pipeline.config import ROOT, load_config
from pipeline.model.moe.gates.capacity import router_outputs
from pipeline.model.moe.gates.config import GATES as RECORDS
from pipeline.model.moe.gates.top_k_config import TopKConfig
from pipeline.model.moe.routers import build_router
from tests.gates import GATES, gates_where, moe_of


def page(name):
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_every_kind_has_a_file_of_its_name():
    assert {*RECORDS} == {*GATES} - {"prioritized", "sigmoid"}  # their kinds are top2 and topk


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
    (names,) = re.findall(r"Gates: (.*?)\. Those", page("pruning"), re.DOTALL)
    assert sorted(re.findall(r"\w+(?=,|\.| and |$)", names)) == gates_where(lambda gate: not gate.unprunable)


def test_gates_that_the_page_on_export_names():
    (names,) = re.findall(r"^\| MoE with a gate (.*?) \| `Nllb", page("export"), re.MULTILINE)
    kinds = {*re.findall(r"`(\w+)`", names)}
    assert kinds == {*gates_where(lambda gate: not gate.unexportable)} - {"prioritized"}  # its kind is top2


def test_sigmoid_is_top_k_with_other_scores_and_a_bias_in_place_of_a_loss():
    gate = load_config(["gate=sigmoid"]).model.moe.gate
    assert gate == TopKConfig(score="sigmoid", capacity_factor=0.0, balance_weight=0.0, bias_rate=0.001)


def test_records_name_shared_experts_only_if_there_are_any():
    """Otherwise keys of stages would be others than those of earlier versions."""
    for config, expected in ((load_config([]), None), (load_config(["model.moe.shared_experts=2"]), 2)):
        for record in (config.model.to_json(), config.to_json()["model"]):
            assert record["moe"].get("shared_experts") == expected
