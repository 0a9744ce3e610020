"""docs/extend.md: its examples are put where they say, run, and do what they promise."""

import importlib
import inspect
import re
import shutil
import sys
from dataclasses import make_dataclass
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml

from pipeline.config import ROOT, load_config

TEXT = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## How do I add an? ([\w ]+?)(?: to the report)?\?\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S))


def blocks(section: str, language: str) -> dict[str, str]:
    """Blocks of a section by their first line, which says where they go; the check is under the name ''."""
    texts = re.findall(rf"^```{language}\n(.*?)^```", SECTIONS[section], re.M | re.S)
    return {(text.splitlines()[0][2:] if text.startswith("# ") else ""): text for text in texts}


@pytest.fixture
def place():
    """A function that runs a block in the module that its first line names; at the end all modules are as before."""
    modules = []

    def run(where: str, block: str) -> ModuleType:
        path, _, what = where.partition(": ")
        module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        tables = {name: dict(value) for name, value in vars(module).items() if type(value) is dict and name[0] != "_"}
        modules.append((module, dict(vars(module)), tables))
        function = re.match(r"in (\w+), (before the last line|at the end)", what)
        source = inserted(getattr(module, function[1]), block, function[2]) if function else block
        exec(compile(source, where, "exec"), vars(module))
        return module

    yield run
    for module, names, tables in reversed(modules):
        for name in set(vars(module)) - set(names):
            delattr(module, name)
        vars(module).update(names)
        for name, table in tables.items():
            names[name].clear()
            names[name].update(table)


def inserted(function, block: str, where: str) -> str:
    """The source of a function with a block before its last line or after it."""
    lines = inspect.getsource(function).rstrip().split("\n")
    last = len(lines) if where == "at the end" else len(lines) - 1
    return "\n".join([*lines[:last], block.split("\n", 1)[1].rstrip("\n"), *lines[last:]])


def test_every_section_has_a_test():
    assert set(SECTIONS) == {"gate", "metric", "reader", "cleaning rule", "recipe", "plot"}


def test_every_path_and_name_in_the_table_exists():
    head = TEXT.partition("## How do I add a gate")[0]
    assert all((ROOT / path).exists() for path in re.findall(r"`((?:pipeline|eval|configs)/[\w/.]+)`", head))
    sources = "".join(
        path.read_text(encoding="utf-8") for d in ("pipeline", "eval") for path in (ROOT / d).rglob("*.py")
    )
    names = re.findall(r"`(\w+)`", head)
    assert "build_router" in names
    assert all(re.search(rf"\b{name}\b", sources) for name in names)


def test_gate(place):
    (config_at, config), (router_at, router), (case_at, case) = blocks("gate", "python").items()
    configs, routers = place(config_at, config), importlib.import_module("pipeline.model.moe.routers")
    place(
        router_at,
        f"from {configs.__name__} import RoundRobinConfig\n"
        f"from pipeline.model.moe.gates.choices import choose\n{router}",
    )
    place(case_at, case)
    ((_, text),) = blocks("gate", "yaml").items()
    gate = configs.RoundRobinConfig(**yaml.safe_load(text)["gate"])
    tokens = routers.Tokens.of_mask(torch.tensor([[True, True, True, True, False]]))
    routing = routers.build_router(8, 3, gate, with_z=False)(torch.randn(1, 5, 8), tokens)
    assert routing.decision.expert_GSK.squeeze(-1).tolist() == [[0, 1, 2, 0, 1]]
    assert torch.allclose(routing.decision.weight_GSK.squeeze(-1), torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0]]))
    assert int(routing.decision.unserved) == 0


def test_metric(place):
    *parts, (_, check) = blocks("metric", "python").items()
    for where, block in parts:
        place(where, block)
    exec(check, {})


def test_reader(place, tmp_path, monkeypatch):
    (_, reader), *announced = blocks("reader", "python").items()
    space: dict[str, object] = {"__name__": "bars"}
    exec(reader, space)
    module = ModuleType("pipeline.corpus.readers.bars")
    module.read_bars = space["read_bars"]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for where, block in announced:
        place(where, block)
    entry = re.search(r"says `(- .*?)`", SECTIONS["reader"])[1]
    (tmp_path / "manifest.yaml").write_text(f"name: mine\nfiles:\n  {entry}\n", encoding="utf-8")
    (tmp_path / "de-en.bars").write_text("Hallo ||| Hello\nja ||| yes\n", encoding="utf-8")
    from pipeline.corpus.manifest import read_manifest
    from pipeline.corpus.readers import open_table

    (file,) = read_manifest(tmp_path).files
    table = open_table([tmp_path / "de-en.bars"], file, {})
    assert [batch.to_pydict() for batch in table.batches] == [{"de": ["Hallo", "ja"], "en": ["Hello", "yes"]}]
    (tmp_path / "de-en.bars").write_text("Hallo ||| Hello\nja\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 2: it has no ' \|\|\| '"):
        list(open_table([tmp_path / "de-en.bars"], file, {}).batches)


def test_rule(place):
    (rule_at, rule), (field_at, field) = blocks("cleaning rule", "python").items()
    module = place(rule_at, rule)
    assert field_at.startswith("pipeline/corpus/config.py")
    name, kind, value = re.search(r"^ {4}(\w+): (.*) = (.*)$", field, re.M).groups()
    assert (name, kind, value) == ("min_chars", "int | None", "3")
    extended = make_dataclass("Extended", [(name, int | None, 3)], bases=(module.Rules,), frozen=True, kw_only=True)
    from pipeline.corpus.cleaning.codepoints import Texts
    from pipeline.corpus.languages import LangPair

    rules = module.row_rules(extended(), LangPair("de", "en"), None)
    assert list(rules)[-1] == "too_short"
    src, tgt = (Texts.normalized(pa.array(side)) for side in (["ja", "genau"], ["yes", "exactly"]))
    assert np.array_equal(rules["too_short"](src, tgt), [True, False])


def test_recipe(tmp_path):
    (text,) = blocks("recipe", "yaml").values()
    where = re.search(r"This one is `(.*?)`", SECTIONS["recipe"])[1]
    for part in ("configs", "recipes"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / where).parent.mkdir(parents=True)
    (tmp_path / where).write_text(text, encoding="utf-8")
    config = load_config([f"recipes={where.removeprefix('recipes/').removesuffix('.yaml')}"], root=tmp_path)
    assert (config.recipe, config.model.dim, config.model.moe.num_experts) == ("mine_small", 128, 4)


def test_plot(place):
    (plot_at, plot), (report_at, drawn) = blocks("plot", "python").items()
    plots = place(plot_at, plot)
    report = importlib.import_module(report_at.partition(".py")[0].replace("/", "."))
    vars(report)["plot_gains"] = plots.plot_gains
    place(report_at, drawn)
    del report.plot_gains
    point = plots.TrendPoint(
        pair="de-en", label="de", train_pairs=9, delta=1.5, ci_low=0.0, ci_high=3.0, joint=np.zeros(3)
    )
    assert plots.plot_gains({"moe": [point]}).axes[0].get_ylabel() == "pairs"
    assert "plot_gains" in report._draw_scores.__code__.co_names
    ((_, html),) = blocks("plot", "html").items()
    assert html.strip().startswith("{% if figures.gains is defined %}")
    assert (ROOT / re.search(r"show it in `(.*?)`", SECTIONS["plot"])[1]).is_file()
