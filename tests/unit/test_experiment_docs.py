"""docs/experiment.md: its commands, and the rehearsal's table, which lies beside the recipes."""

import csv
import re

import pytest

from pipeline.config import ROOT
from pipeline.sweep.command import plan
from pipeline.sweep.config import load_sweep
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")
SWEEPS = [line.split("  #")[0] for line in re.findall(r"^make sweep .*$", TEXT, re.MULTILINE)]
with (ROOT / "recipes" / "freesoft38" / "rehearsal.csv").open(encoding="utf-8") as stream:
    ROWS = list(csv.DictReader(stream))


def planned(command):
    return plan(load_sweep(overrides_of("sweep", command)))


@pytest.mark.parametrize(("command", "tokens"), zip(SWEEPS, (2_000_000, 20_000_000), strict=True))
def test_the_sweeps_are_those_that_the_rehearsal_ran(command, tokens):
    points = planned(command).points
    assert {point.config.train.max_tokens for point in points} == {tokens}
    ran = {row["id"]: int(row["parameters"]) for row in ROWS if row["kind"] == "run"}
    assert {point.id: point.parameters for point in points} == ran


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
