"""docs/experiment.md: its commands, and the rehearsal's table, which lies beside the recipes."""

import csv
import re
import shlex

import pytest

from bench.experiment.__main__ import parse
from pipeline.config import ROOT, load_config
from pipeline.sweep.command import plan
from pipeline.sweep.config import load_sweep
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")
SWEEPS = {name: line for line, name in re.findall(r"^(make sweep EXPERIMENT=(\w+) .*)$", TEXT, re.MULTILINE)}
with (ROOT / "recipes" / "freesoft38" / "rehearsal.csv").open(encoding="utf-8") as stream:
    ROWS = list(csv.DictReader(stream))


def planned(command):
    return plan(load_sweep(overrides_of("sweep", command)))


def test_the_rehearsal_is_that_which_ran():
    points = planned(SWEEPS["freesoft38_rehearsal"]).points
    assert {point.config.train.max_tokens for point in points} == {2_000_000}
    ran = {row["id"]: int(row["parameters"]) for row in ROWS if row["kind"] == "run"}
    assert {point.id: point.parameters for point in points} == ran


def test_the_experiment_has_the_systems_of_the_page():
    points = planned(SWEEPS["freesoft38"]).points
    assert {point.config.train.max_tokens for point in points} == {12_000_000}
    (table,) = re.findall(r"^\| system \| what it is .*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    systems = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert {*systems} == {"bilingual", *(point.id.rpartition("_s")[0] for point in points)}


@pytest.mark.parametrize(("name", "number"), [("freesoft38_rates", 18), ("freesoft38_ablations", 9)])
def test_the_sweeps_before_and_after_it_are_there(name, number):
    assert len(planned(SWEEPS[name]).points) == number


def test_the_commands_of_bench_experiment_are_read(monkeypatch):
    commands = re.findall(r"^\.venv/bin/python -m bench\.experiment (.*)$", TEXT, re.MULTILINE)
    options = {}
    for command in commands:
        monkeypatch.setattr("sys.argv", ["bench.experiment", *shlex.split(command)])
        arguments = parse()
        options[arguments.command] = arguments
    assert options.keys() == {"keep", "baselines", "restore", "scaling"}
    assert len(options["scaling"].runs) == 3
    config = load_config(options["baselines"].overrides)
    assert (config.baselines.search, config.pairs) == (None, ["da-en", "de-en"])
    for command in re.findall(r"^make train .*$", TEXT, re.MULTILINE):
        assert not load_config(overrides_of("train", command)).baselines.tiers


def test_the_table_is_that_of_the_file():
    """Systems by their means over seeds, and the bilingual models."""
    rows = re.findall(r"^\| `(\w+)`[^|]*\|[^|]*\|[^|]*\|[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \|([^|]*)\|", TEXT, re.MULTILINE)
    means = {row["id"]: row for row in ROWS if row["kind"] != "run" or not re.search(r"_s\d$", row["id"])}
    assert {name: score for name, score, _ in rows} == {
        name: f"{float(row['bleu']):.2f}" for name, row in means.items()
    }
    for name, _, delta in rows:
        expected = f"{float(means[name]['delta_bleu']):+.2f}" if means[name]["delta_bleu"] else ""
        assert delta.strip() == expected


def test_figures_and_links_are_there():
    links = [link for link in re.findall(r"\]\(([^)]*)\)", TEXT) if not link.startswith("https:")]
    assert links
    assert all((ROOT / "docs" / link.partition("#")[0]).is_file() for link in links)
