"""Commands of docs/layouts.md compose, and its errors and its warning are those that users see."""

import re

import pytest

from pipeline.config import ROOT, load_config
from pipeline.parallel.layout import CUTTABLE, WHOLE, Layout, layout_of
from tests.make import words_of

TEXT = (ROOT / "docs" / "layouts.md").read_text(encoding="utf-8")
REFUSED = re.findall(r"^\| `([^`]+=[^`]+)` \| `([^`]+)` \|$", TEXT, flags=re.MULTILINE)
COMMANDS = re.findall(r"^make \w+ .*(?=#)", TEXT, flags=re.MULTILINE)


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_what_is_refused_is_refused_in_these_words(overrides, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load_config(overrides.split())


def test_there_are_errors_and_commands():
    assert (len(REFUSED), len(COMMANDS)) == (8, 4)


@pytest.mark.parametrize(
    ("command", "sizes", "table"),
    zip(
        COMMANDS,
        [(1, 1, 2), (1, 2, 2), (1, 1, 2), (1, 2, 1)],
        ["GEHNV", "GEHNV", "GEV", "G"],
        strict=True,
    ),
)
def test_commands_are_of_the_layouts_they_say(command, sizes, table):
    config = load_config(words_of(command)[1])
    layout = layout_of(config.layout, config.runtime)
    assert tuple(layout.sizes.values()) == sizes
    assert "".join(layout.table) == table


def test_the_warning_is_what_a_user_reads(caplog):
    arguments = re.search(r'`make config ARGS="([^"]*)"` says', TEXT)[1]
    text = re.search(r"^warning: layout: .*$", TEXT, flags=re.MULTILINE)[0]
    load_config(arguments.split())
    assert [record.getMessage() for record in caplog.records] == [text]


@pytest.mark.parametrize(("name", "column"), [("gshard", 2), ("model", 3)])
def test_the_table_has_the_layouts_that_there_are(name, column):
    rows = [row.strip("|").split("|") for row in TEXT.splitlines() if re.match(r"\| `[A-Z]` \|", row)]
    cells = {row[0].strip(" `"): row[column].strip(" `[]") for row in rows}
    assert set(cells) == set(CUTTABLE)
    config = load_config([f"layout={name}"])
    table = layout_of(config.layout, config.runtime).table
    assert {letter: ", ".join(table.get(letter, ())) for letter in CUTTABLE} == cells


def test_letters_that_are_not_cut_are_named():
    for letter in set(WHOLE) - {"C"}:
        assert re.search(rf"^- `{letter}`", TEXT, re.MULTILINE), letter
        with pytest.raises(ValueError, match=f"no layout cuts {letter}"):
            Layout(table={letter: ("model",)}, sizes={"data": 1, "expert": 1, "model": 2})


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]*)[^)]*\)", TEXT):
        assert (ROOT / "docs" / link).is_file()
