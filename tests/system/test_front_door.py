"""The first commands of a newcomer: `make help`, those of the README, and all of it in a fresh clone."""

import shutil
import subprocess

import pytest

from pipeline.commands.table import COMMANDS
from pipeline.config import ROOT
from tests.system.place import run


def test_make_help_lists_every_target():
    output = run(["make", "help"]).stdout
    targets = (
        "setup train sweep status data baselines backtranslate translate serve prune distill export score report "
        "config verify bench"
    )
    for target in [*targets.split(), "check", "test"]:
        assert f"make {target}" in output


def test_readme_names_only_targets_and_keys_that_exist(tmp_path):
    """Every `make` target and every configuration key in the README's code is real."""
    from pipeline.config import load_config

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = {
        line.split("##")[0].split(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if "## " in line
    } | {command.name for command in COMMANDS}
    blocks = text.split("```")[1::2]
    lines = [line for block in blocks for line in block.splitlines()]
    for line in lines:
        words = [word for word in line.split("#")[0].split() if word != "-s"]
        if words[:1] == ["make"]:
            assert words[1] in targets, line
            if words[1] in ("train", "data", "config") and " ARGS=" in line:
                load_config([f"recipes={recipe_of(line)}", *line.split('ARGS="')[1].split('"')[0].split()])


def recipe_of(line):
    return line.split("RECIPE=")[1].split()[0] if "RECIPE=" in line else "demo"


IN_A_CLONE = """
import importlib, re
from pathlib import Path
from pipeline.config import ROOT, load_config
assert ROOT == Path.cwd()
for file in sorted([*ROOT.glob("pipeline/**/*.py"), *ROOT.glob("eval/**/*.py")]):
    if file.parent.name != "beside":  # what is copied beside an exported model is code for transformers
        importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
for file in ROOT.glob("recipes/**/*.yaml"):
    load_config([f"recipes={file.relative_to(ROOT / 'recipes').with_suffix('')}"])
for file in [*ROOT.glob("eval/**/*.py"), *ROOT.glob("eval/report/templates/*")]:
    for name in re.findall(r'"([a-z_.]+[.](?:j2|css))"', file.read_text(encoding="utf-8")):
        assert (ROOT / "eval/report/templates" / name).is_file(), name
"""


def test_a_clone_has_all_that_the_sources_import_and_read(tmp_path):
    """A copy of the tracked files imports every module, loads every recipe and takes the sample through the stages
    before training. A file that was not added to git, or that git ignores, is missing there."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    tracked = run(["git", "ls-files", "-z", "pipeline", "eval", "configs", "recipes", "data"]).stdout.split("\0")
    for name in tracked:
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    python = str(ROOT / ".venv/bin/python")
    for command in (["-c", IN_A_CLONE], ["-m", "pipeline", "data", "recipes=smoke", "pairs=[tr-en]"]):
        process = subprocess.run([python, *command], cwd=tmp_path, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
