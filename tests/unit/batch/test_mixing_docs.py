"""docs/mixing.md: its settings give its tables, and its mistakes are errors."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest
import yaml

from pipeline.batch.config import BatchConfig
from pipeline.batch.lengths import PairLengths
from pipeline.batch.mixture import Mixture
from pipeline.batch.mixture_config import MixtureConfig, PairGroup, SourceRule
from pipeline.config import ROOT, load_config
from pipeline.schema import build
from tests.make import overrides_of
from tests.unit.batch.streams import LONG, SHORT

TEXT = (ROOT / "docs" / "mixing.md").read_text(encoding="utf-8")


def cells(table):
    """Return the rows of a table without its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


TABLES = re.findall(r"(?m)(?:^\|.*\n)+", TEXT)
CORPUS, MISTAKES = cells(TABLES[0]), cells(TABLES[-1])
CASES = re.findall(r"```yaml\n([^`]*)```\n\n((?:\|[^\n]*\n)+)", TEXT)


def mixture(settings):
    """Mix the documented corpus by these settings."""
    sources = {}
    for pair, source, rows in CORPUS:
        sources.setdefault(pair, []).append((source, int(rows)))
    lengths = [
        PairLengths(name=pair, source=np.full(n, 9, np.int8), target=np.full(n, 9, np.int8), sources=counts)
        for pair, counts in sources.items()
        for n in [sum(rows for _, rows in counts)]
    ]
    config = build(MixtureConfig, yaml.safe_load(settings), "batch.mixture")
    return Mixture(BatchConfig(shapes=[SHORT, LONG], groups_per_step=1, mixture=config), lengths, seed=1)


@pytest.mark.parametrize(("settings", "table"), CASES, ids=[case[0].splitlines()[-1].strip() for case in CASES])
def test_tables_are_what_the_settings_give(settings, table):
    phases = mixture(settings).table()
    rows = [
        [str(phase["from_step"]), s["pair"], s["source"], f"{s['share']:.1%}".replace("%", " %"), f"{s['repeats']:.2g}"]
        for phase in phases
        for s in phase["sources"]
    ]
    page = [row if len(row) == 5 else ["1", *row] for row in cells(table)]
    assert [row[:-1] for row in rows] == [row[:-1] for row in page]
    assert [float(row[-1]) for row in rows] == [float(row[-1]) for row in page]


def test_there_are_tables_for_every_setting():
    assert len(CASES) == 5
    documented = "".join(settings for settings, _ in CASES)
    for config in (MixtureConfig, PairGroup, SourceRule):
        for field in fields(config):
            assert field.name in documented, field.name


@pytest.mark.parametrize(("settings", "message"), MISTAKES)
def test_mistakes_are_errors(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        mixture("{" + settings.strip("`") + "}")
    assert str(error.value).startswith("batch.mixture")


def test_the_command_composes():
    (command,) = re.findall(r"^make train .*$", TEXT, re.MULTILINE)
    config = load_config(overrides_of("train", command))
    group = config.batch.mixture.groups["rare"]
    assert (group.pairs, group.share) == (["tr-en"], 0.1)
    assert set(group.pairs) < set(config.pairs)


def test_defaults_are_those_of_the_page():
    for overrides, words in (
        (["recipes=smoke"], "The default (`batch=packed`) is "),
        (["recipes=demo"], "The recipe `demo` has\n"),
        (["batch=freesoft38"], "`batch=freesoft38` has "),
    ):
        mixture = load_config(overrides).batch.mixture
        assert replace(mixture, temperature=1.0, max_repeats=0.0) == MixtureConfig(temperature=1.0)
        assert f"{words}`temperature: {mixture.temperature}`" in TEXT
        assert not mixture.max_repeats or f"`max_repeats: {mixture.max_repeats:g}`" in TEXT
