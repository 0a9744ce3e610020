"""`--help` of each command, `--version`, and the script `babelshard`: what they print, by real command lines."""

import importlib
import os
import re
import signal
import subprocess
import sys
import tomllib

import pytest

from pipeline.commands.help import WIDTH, command_help
from pipeline.commands.keys import has_file, settings
from pipeline.commands.table import COMMANDS, find_command
from pipeline.config import ROOT, load_config

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULE, _, FUNCTION = PROJECT["scripts"]["babelshard"].partition(":")
SCRIPT = [
    sys.executable,
    "-c",
    f"import sys; from {MODULE} import {FUNCTION}; sys.exit({FUNCTION}())",
]  # as pip writes it


def printed(*words, command=(sys.executable, "-m", "pipeline"), **options):
    options = {"cwd": ROOT, **options}
    process = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, **options)
    return process.returncode, process.stdout, process.stderr


def keys_of(text):
    """Keys in a help: each begins a line, two columns from the left."""
    return re.findall(r"^  ([a-z_]+(?:[.\[\]]|\.NAME|\w)*)(?:=.*)?  \(.*\)$", text, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_explains_its_words_and_keys(command):
    text = command_help(command, [])
    assert f"make {command.name} " in text
    assert command.help.split()[0] in text
    for word in command.settings:
        assert re.search(rf"^  {word} +[\w./]+$", text, re.MULTILINE)
    if has_file(command):
        assert keys_of(text) == [key.key for key in settings(command)]
    long = [line for line in text.splitlines() if line.startswith("      ") and len(line) > WIDTH[-1]]
    assert long == []


@pytest.mark.parametrize("name", ["train", "verify"])
def test_the_keys_of_a_run_are_those_of_the_page_of_settings(name):
    page = (ROOT / "docs" / "config-keys.md").read_text(encoding="utf-8")
    block = page.partition(f"<!-- reference: {'run' if name == 'train' else name} -->")[2].partition("<!-- end -->")[0]
    keys = keys_of(command_help(find_command(name), []))
    assert keys == re.findall(r"^\| `([^`]+)` \|", block, re.MULTILINE)
    assert len(keys) > 5


def test_defaults_are_those_of_the_recipe():
    text = command_help(find_command("train"), ["RECIPE=smoke", "CORPUS=.", "model.dim=24"])
    smoke = load_config(["recipes=smoke", "model.dim=24"])
    assert "under recipe smoke:" in text
    assert smoke.train.max_tokens != load_config([]).train.max_tokens
    assert f"  train.max_tokens={smoke.train.max_tokens}  (integer)\n" in text
    assert "  model.dim=24  (integer)\n" in text
    assert "  model  (mapping, below)\n" in text


def test_a_page_says_which_further_keys_there_are():
    assert "Any other key is one of make train, and one with commas is an axis." in command_help(
        find_command("sweep"), []
    )
    assert "and decode.* and runtime.*, as `python -m pipeline train --help` has them" in command_help(
        find_command("translate"), []
    )
    assert "and runtime.*, as" in command_help(find_command("export"), [])  # it has keys of decoding of its own


def test_help_is_a_command_an_option_and_an_argument_of_make():
    code, text, _ = printed("status", "--help")
    assert (code, text) == (0, command_help(find_command("status"), []) + "\n")
    assert printed("help", "status") == (0, text, "")
    assert printed("status", "run=mine", "-h") == (0, text, "")
    assert "  any of these:\n    ARGS=--help prints its keys" in printed("help", "make")[1]
    assert printed("ARGS=--help", "status", command=["make", "-s", "--old-file=.venv/.ready"])[1] == text
    code, _, error = printed("train", "--help", "recipes=smok")
    assert code == 1
    assert "did you mean smoke" in error
    assert printed("help", "trian")[0] == 2


def test_the_version_is_that_of_the_project():
    assert printed("--version") == (0, f"babelshard {PROJECT['version']}\n", "")


def test_babelshard_is_the_same_command_from_any_directory(tmp_path):
    assert callable(getattr(importlib.import_module(MODULE), FUNCTION))
    assert printed("--version", command=SCRIPT, cwd=tmp_path)[1] == f"babelshard {PROJECT['version']}\n"
    there = printed("config", "recipes=smoke", command=SCRIPT, cwd=tmp_path)
    assert there == printed("config", "recipes=smoke")
    assert there[0] == 0
    code, _, error = printed("trian", command=SCRIPT, cwd=tmp_path)
    assert (code, error) == (2, printed("trian")[2])


@pytest.mark.parametrize("words", [["--help"], ["help", "make"], ["train", "--help"]])
def test_a_reader_may_stop_reading(words):
    """As `| head` does. Then the program ends as others do, by SIGPIPE, without a traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", *words], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert process.communicate(timeout=120)[1] == ""
    assert process.returncode == 128 + signal.SIGPIPE
