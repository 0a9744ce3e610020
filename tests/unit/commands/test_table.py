"""The table of commands: each can be loaded and run, its settings are keys that exist, and the help shows all of it."""

import importlib

import pytest

from pipeline.commands.table import COMMANDS, examples, find_command, summaries
from pipeline.config import load_config


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_its_functions_and_its_line(command):
    for place in (command.load, command.run):
        module, _, name = place.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
    assert f"make {command.name} " in summaries("make ")
    assert command.example in examples()


def test_settings_come_before_overrides_in_the_order_of_the_table():
    words = ["train.seed=2", "NAME=my run", "LANG_PAIRS=de-en, tr-en", "RECIPE=smoke", "PAIR=de-en", "KEEP="]
    overrides = find_command("train").overrides(words)
    assert overrides == ["recipes=smoke", 'name="my run"', "pairs=[de-en,tr-en]", "train.seed=2"]
    assert (load_config(overrides).name, load_config(overrides).train.seed) == ("my run", 2)


def test_an_experiment_names_its_own_recipes():
    assert find_command("sweep").overrides(["RECIPE=demo", "EXPERIMENT=freesoft38"]) == ["experiment=freesoft38"]
    assert find_command("sweep").overrides(["RECIPE=demo smoke"]) == ["recipes=demo,smoke"]


def test_a_setting_of_no_command_is_an_error():
    with pytest.raises(ValueError, match=r"setting LANG_PAIR does not exist; did you mean LANG_PAIRS"):
        find_command("train").overrides(["LANG_PAIR=de-en"])
    with pytest.raises(ValueError, match=r"target trian does not exist; did you mean train"):
        find_command("trian")
