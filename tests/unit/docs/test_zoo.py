"""docs/zoo.md: its commands, and what it says of all models."""

import csv
import re
import shlex

from bench.experiment.__main__ import parse
from pipeline.config import ROOT, load_config
from pipeline.export.config import load_export
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")


def rows_of(name):
    with (ROOT / "recipes" / "freesoft38" / f"{name}.csv").open(encoding="utf-8") as stream:
        return {row["system"]: row for row in csv.DictReader(stream)}


SYSTEMS, DECODING = rows_of("systems"), rows_of("decoding")


def test_the_command_trains_every_model_with_its_name_in_both_places():
    (command,) = re.findall(r"^make train .*$", TEXT, re.MULTILINE)
    assert command.count("moe_8e") == 2
    for name, row in SYSTEMS.items():
        config = load_config(overrides_of("train", command.replace("moe_8e", name)))
        assert (config.recipe, config.name) == (row["recipe"], f"{name}_s1")
        assert not config.baselines.tiers


def test_the_commands_of_its_rows_and_of_an_export_are_read(monkeypatch):
    commands = re.findall(r"^\.venv/bin/python -m bench\.experiment (.*)$", TEXT, re.MULTILINE)
    chosen = []
    for command in commands:
        monkeypatch.setattr("sys.argv", ["bench.experiment", *shlex.split(command)])
        chosen.append(parse().command)
    assert chosen == ["systems", "decoding"]
    (command,) = re.findall(r"`(make export [^`]*)`", TEXT)
    export = load_export(overrides_of("export", command))
    assert (export.run, export.format) == ("dense_s1", "ctranslate2")


def test_what_it_says_of_all_models_is_in_their_rows():
    assert DECODING.keys() == SYSTEMS.keys()
    for row in SYSTEMS.values():
        assert row["size"].startswith("d=192, 3+3 layers")
        assert (round(float(row["tokens"]), -6), row["num_pairs"]) == (12e6, "38")
    assert [row["num_seeds"] for row in SYSTEMS.values()] == ["2", "2", "1"]
    timed = DECODING["dense"]
    assert (timed["threads"], timed["beam"], timed["precision"], timed["rounds"]) == ("1", "4", "fp32", "5")
    assert int(timed["sentences"]) == 5 * int(timed["pairs"]) == 5 * 38
    fastest_first = sorted(DECODING, key=lambda name: -float(DECODING[name]["sentences_per_second"]))
    least_memory_first = sorted(SYSTEMS, key=lambda name: float(SYSTEMS[name]["memory_gib"]))
    assert fastest_first == least_memory_first == ["dense", "moe_8e", "moe_32e"]
    flops = [float(row["flops_per_token"]) for row in SYSTEMS.values()]
    assert max(flops) < 1.005 * min(flops)
