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
    words = ["train.seed=2", "NAME=my run", "LANG_PAIRS=de-en, tr-en", "RECIPE=smoke", "PAIR?=de-en"]
    overrides = find_command("train").overrides(words)
    assert overrides == ["recipes=smoke", 'name="my run"', "pairs=[de-en,tr-en]", "train.seed=2"]
    assert (load_config(overrides).name, load_config(overrides).train.seed) == ("my run", 2)


@pytest.mark.parametrize("word", ["-v", "--verbose", "VERBOSE=1"])
@pytest.mark.parametrize("name", ["train", "data", "baselines"])
def test_every_line_of_the_stages_is_asked_for_in_three_ways(name, word):
    overrides = find_command(name).overrides([word, "RECIPE=smoke"])
    assert overrides == ["recipes=smoke", "runtime.verbose=true"]
    assert load_config(overrides).runtime.verbose


def test_an_experiment_names_its_own_recipes():
    assert find_command("sweep").overrides(["RECIPE?=demo", "EXPERIMENT=freesoft38"]) == ["experiment=freesoft38"]
    with pytest.raises(ValueError, match=r"EXPERIMENT=freesoft38 names its own recipes; leave out RECIPE=smoke"):
        find_command("sweep").overrides(["RECIPE=smoke", "EXPERIMENT=freesoft38"])
    assert find_command("sweep").overrides(["RECIPE=demo smoke"]) == ["recipes=demo,smoke"]


def test_a_switch_is_1_or_0():
    assert find_command("train").overrides(["REPLACE=1"]) == ["runtime.replace=true"]
    assert find_command("status").overrides(["WATCH=0"]) == ["watch=false"]
    with pytest.raises(ValueError, match=r"SEARCH=yes is neither 1 nor 0"):
        find_command("plan").overrides(["SEARCH=yes"])


@pytest.mark.parametrize(
    ("command", "word", "message"),
    [
        ("train", "LANG_PAIR=de-en", r"train has no setting LANG_PAIR; did you mean LANG_PAIRS"),
        ("train", "KEEP=", r"train has no setting KEEP, which is one of prune; train has RECIPE, CORPUS"),
        ("train", "EXPERTS=4", r'which is one of sweep; it stands for the key .* ARGS="model.moe.num_experts=\.\.\."'),
        ("status", "RECIPE=demo", r"status has no setting RECIPE, which is one of train, sweep, data; status has NAME"),
    ],
)
def test_a_setting_that_the_command_does_not_have_is_an_error_unless_it_is_a_default(command, word, message):
    with pytest.raises(ValueError, match=message):
        find_command(command).overrides([word])
    assert find_command(command).overrides([word.replace("=", "?=")]) == []


def test_a_command_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match=r"target trian does not exist; did you mean train"):
        find_command("trian")
