"""docs/baselines.md: its table is the file's, and what it says of the settings is in the configuration."""

import csv
import re

import pytest

from pipeline.config import ROOT, load_config
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8")
with (ROOT / "configs" / "baselines" / "tiered_search.csv").open(encoding="utf-8") as stream:
    ROWS = list(csv.DictReader(stream))


def test_the_table_is_that_of_the_file():
    (header,) = re.findall(r"^\| candidate \|(.*)\|$", TEXT, re.MULTILINE)
    pairs = [re.fullmatch(r"([\w-]+), ([\d,]+)(?: rows)?", cell.strip()).groups() for cell in header.split("|")]
    losses = {(row["candidate"], row["pair"]): row["nats_per_character"] for row in ROWS}
    lines = re.findall(r"^\| `(\w+)`[^|]*\|(.*)\|$", TEXT, re.MULTILINE)
    assert {name for name, _ in lines} == {row["candidate"] for row in ROWS}
    for name, cells in lines:
        for (pair, _), cell in zip(pairs, cells.split("|"), strict=True):
            best = min(row["nats_per_character"] for row in ROWS if row["pair"] == pair)
            assert cell.strip() == (f"**{best}**" if losses[name, pair] == best else losses[name, pair])
    rows = {row["pair"]: f"{int(row['train_pairs']):,}" for row in ROWS}
    assert dict(pairs) == rows


def test_the_conclusions_are_those_of_the_table():
    losses = {(row["candidate"], row["pair"]): float(row["nats_per_character"]) for row in ROWS}
    pairs = list(dict.fromkeys(row["pair"] for row in ROWS))  # the richest first

    def gains(candidate):
        return [1 - losses[candidate, pair] / losses["base", pair] for pair in pairs]

    assert all(gain <= 0 for gain in gains("vocab_4000"))
    assert [gain > 0 for gain in gains("dropout_50")] == [False, False, True, True]
    assert [gain > 0 for gain in gains("rate_6")] == [False, True, True, True]
    assert all(gain < 0 for candidate in ("not_averaged", "rows_20") for gain in gains(candidate)[:3])
    assert gains("larger")[0] < 0
    assert all(0.01 <= gain <= 0.02 for gain in gains("larger")[1:])
    parameters = {row["candidate"]: int(row["parameters"]) for row in ROWS if row["pair"] == pairs[0]}
    assert parameters["larger"] / parameters["base"] == pytest.approx(2.7, abs=0.05)


def test_the_command_searches_what_the_table_has():
    (command,) = re.findall(r"^make baselines .*$", TEXT, re.MULTILINE)
    config = load_config(overrides_of("baselines", command))
    assert [candidate.name for candidate in config.baselines.search.candidates] == list(
        dict.fromkeys(row["candidate"] for row in ROWS)
    )
    assert config.baselines.search.pairs == len({row["pair"] for row in ROWS})
    assert config.baselines.tiers[0].train.max_tokens == 4_800_000


@pytest.mark.parametrize(
    ("rows", "dropout", "rate"), [(90, 0.5, 0.006), (500, 0.5, 0.006), (1500, 0.3, 0.006), (6000, 0.3, 0.003)]
)
def test_the_demo_has_the_settings_that_the_page_names(rows, dropout, rate):
    config = load_config(["recipes=demo"])
    tier = config.baselines.tier(rows)
    sizes = (tier.model.dim, tier.model.encoder_layers, tier.model.decoder_layers)
    assert sizes == (config.model.dim, config.model.encoder_layers, config.model.decoder_layers) == (128, 2, 2)
    assert (tier.vocab.source_size, tier.vocab.target_size, tier.batch.shapes[0].rows) == (2000, 2000, 8)
    assert (tier.model.dropout, tier.train.learning_rate) == (dropout, rate)
    assert tier.train.patience * tier.train.validate_every == 300
    assert tier.train.ema
    assert tier.train.max_tokens == 2 * config.train.max_tokens == 9_600_000
