"""The record of a gate agrees with its router and with the documentation."""

import re

import pytest

from pipeline.config import ROOT
from pipeline.model.moe.gates.capacity import router_outputs
from pipeline.model.moe.gates.config import GATES as RECORDS
from pipeline.model.moe.routers import build_router
from tests.gates import GATES, gates_where, moe_of


def page(name):
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_every_kind_has_a_file_of_its_name():
    assert {*RECORDS} == {*GATES} - {"prioritized"}


@pytest.mark.parametrize("kind", RECORDS)
def test_parameters_of_the_router(kind):
    router = build_router(6, 8, RECORDS[kind](), with_z=False)
    shapes = {name: tuple(parameter.shape) for name, parameter in router.named_parameters()}
    assert shapes == RECORDS[kind]().router_shapes(8, 6)
    assert 6 * router_outputs(RECORDS[kind](), 8) == sum(p.numel() for p in router.parameters() if p.dim() > 1)


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
