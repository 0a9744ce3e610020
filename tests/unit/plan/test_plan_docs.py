"""The commands of docs/plan.md compose, its keys exist, and its examples are what the commands print."""

import re
from dataclasses import fields

import pytest

from pipeline.config import ROOT
from pipeline.plan.command import answer, plan
from pipeline.plan.config import PlanConfig, load_plan
from pipeline.plan.devices import device_names
from tests.make import overrides_of

PAGE = ROOT / "docs" / "plan.md"
TEXT = PAGE.read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
EXAMPLES = re.findall(r"<!-- (make plan .*?) -->\n```\n(.*?)\n```\n", TEXT, re.DOTALL)


def printed(command: str, example: str) -> str:
    """Return the text to put in place of `example`. After … only the last two lines follow."""
    text = answer(load_plan(overrides_of("plan", command))).text
    return "…\n" + "\n".join(text.splitlines()[-2:]) if example.startswith("…") else text


@pytest.mark.parametrize(("command", "example"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_an_example_is_what_the_command_prints(command, example):
    remedy = "`python -m tests.unit.plan.test_plan_docs` writes it, and the figure, again"
    assert printed(command, example) == example, remedy


def test_the_commands_compose():
    commands = BLOCK.splitlines()
    configs = [load_plan(overrides_of("plan", command.replace("make -s", "make"))) for command in commands]
    assert len(configs) == 6
    assert [len(config.recipes) for config in configs] == [1, 1, 1, 2, 8, 1]
    second = configs[1]
    assert (second.layout, second.mp, second.ep, second.zero_stage, second.recompute) == ("model", 2, 64, 2, "layers")
    assert configs[2].search
    assert (configs[4].devices, configs[4].device.name) == (0, "tpu_v3")
    assert configs[5].format == "json"


def test_the_keys_exist():
    names = re.findall(r"^\| [^|]* \| ([^|]+) \|", TEXT, re.MULTILINE)
    keys = {key for name in names for key in re.findall(r"`([a-z_]+)`", name)}
    own = {field.name for field in fields(PlanConfig)} - {"what", "device_name", "device_keys", "overrides"}
    assert keys == own | {"layout"}
    assert "`device.price=2.5`" in TEXT
    plain = load_plan([])
    assert (plain.recipes, plain.devices, plain.device.name, plain.ep, plain.mp) == (["demo"], 1, "h100", None, None)
    assert (plain.zero_stage, plain.recompute, plain.top, plain.format) == (1, "none", 10, "text")
    assert set(device_names()) <= set(re.findall(r"`(\w+)`", TEXT.split("## Devices")[1]))


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]*)\)", TEXT)
    assert "plan_gshard.png" in links
    assert [link for link in links if not (ROOT / "docs" / link.partition("#")[0]).is_file()] == []


def write() -> None:
    """Write the present output of the commands into the page, and draw the figure."""
    text = TEXT
    for command, example in EXAMPLES:
        text = text.replace(f"-->\n```\n{example}\n```", f"-->\n```\n{printed(command, example)}\n```")
    PAGE.write_text(text, encoding="utf-8")
    plan(load_plan(["recipes=gshard", "devices=paper", "out=docs/plan_gshard.png"]))


if __name__ == "__main__":
    write()
