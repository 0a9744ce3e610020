"""docs/baselines.md: its table is the file's, and what it says of the settings is in the configuration."""

import csv
import re
from statistics import fmean

import pytest

from pipeline.config import ROOT, load_config
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "baselines.md").read_text(encoding="utf-8")
with (ROOT / "configs" / "baselines" / "tiered_search.csv").open(encoding="utf-8") as stream:
    ROWS = list(csv.DictReader(stream))
with (ROOT / "recipes" / "demo.csv").open(encoding="utf-8") as stream:
    BLEU = {
        (row["pair"], row["system"] + row["seed"]): float(row["score"])
        for row in csv.DictReader(stream)
        if row["metric"] == "bleu"
    }
with (ROOT / "recipes" / "demo_search.csv").open(encoding="utf-8") as stream:
    CANDIDATES = list(csv.DictReader(stream))
PAIRS = list(dict.fromkeys(pair for pair, _ in BLEU))
SYSTEMS = ("bilingual1", "moe1", "moe2", "moe3")


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


def test_the_candidates_of_the_multilingual_model_are_those_of_the_file():
    (table,) = re.findall(r"^\| dropout \| temperature .*\n\|[-:|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    best = min(CANDIDATES, key=lambda row: float(row["nats_per_character"]))
    assert cells == [
        [
            row["dropout"],
            f"{float(row['temperature']):g}",
            f"{int(row['source_size']):,}, {int(row['target_size']):,}",
            f"**{row['nats_per_character']}**" if row == best else row["nats_per_character"],
            f"{int(row['best_step']):,} of {int(row['steps']):,}",
        ]
        for row in CANDIDATES
    ]
    config = load_config(["recipes=demo"])
    assert [config.model.dropout, config.batch.mixture.temperature] == [
        float(best[name]) for name in ("dropout", "temperature")
    ]
    sizes = [config.vocab.source_size, config.vocab.target_size]
    assert sizes == [int(best[name]) for name in ("source_size", "target_size")]
    assert config.train.max_tokens == pytest.approx(1.5 * int(best["target_tokens"]), rel=0.001)


def test_temperature_1_is_better_for_every_pair():
    losses = {(row["dropout"], row["temperature"], row["source_size"]): row for row in CANDIDATES}
    one, two = losses["0.3", "1.0", "8000"], losses["0.3", "2.0", "8000"]
    assert all(float(one[pair]) < float(two[pair]) for pair in PAIRS)
    with (ROOT / "recipes" / "demo.csv").open(encoding="utf-8") as stream:
        rows = {row["pair"]: int(row["train_pairs"]) for row in csv.DictReader(stream)}
    shares = {pair: number**0.5 / sum(number**0.5 for number in rows.values()) for pair, number in rows.items()}
    ratios = {pair: shares[pair] / (number / sum(rows.values())) for pair, number in rows.items()}
    assert f"rows of tr-en {ratios['tr-en']:.1f} times as often" in TEXT
    assert f"rows of de-en {ratios['de-en']:.1f} times as often" in TEXT


def test_the_scores_of_three_seeds_are_those_of_the_file():
    (table,) = re.findall(r"^\| pair \| bilingual .*\n\|[-:|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    cells = {
        name: numbers for name, *numbers in ([c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines())
    }
    means = [f"{fmean(BLEU[pair, system] for pair in PAIRS):.1f}" for system in SYSTEMS]
    assert cells.pop("mean") == means
    assert cells == {pair: [f"{BLEU[pair, system]:.1f}" for system in SYSTEMS] for pair in PAIRS}


def test_the_table_of_the_readme_is_the_first_seed():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown_rows = re.findall(r"^\| ([\w-]+) \| [\d,]+ \| ([\d.]+) \| ([\d.]+) \|", text, re.MULTILINE)
    assert shown_rows == [(pair, f"{BLEU[pair, 'moe1']:.1f}", f"{BLEU[pair, 'bilingual1']:.1f}") for pair in PAIRS]


def test_all_seeds_agree_on_where_the_multilingual_model_is_better():
    """On the four pairs with the least text; on fr-en it is worse."""
    for seed in ("moe1", "moe2", "moe3"):
        gains = [BLEU[pair, seed] - BLEU[pair, "bilingual1"] for pair in PAIRS]
        assert all(gain > 0 for gain in gains[3:])
        assert PAIRS[1] == "fr-en"
        assert gains[1] < 0


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
    assert tier.train.max_tokens == 2 * config.train.max_tokens == 14_400_000
