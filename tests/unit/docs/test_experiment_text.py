"""The pages of the experiment: what they say of searches, settings and text is in the files that they name."""

import csv
import json
import re
from statistics import fmean

import numpy as np
import pytest
import yaml

from bench.experiment.__main__ import ARCHIVES
from bench.experiment.archive import read_archive
from eval.score.macro import resource_classes
from pipeline.batch.proportions import phases, units
from pipeline.config import ROOT, load_config
from tests.experiment_tables import rows_of, words_of

FLAT = words_of("experiment", "experiment-searches")


def search_rows(name):
    with (ROOT / "configs" / "baselines" / f"freesoft38_{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_bilingual_models_have_tiers_at_the_searched_pairs_and_the_patience_of_the_page():
    baselines = load_config(["recipes=freesoft38/dense"]).baselines
    assert baselines.search is None
    searched = {int(row["train_pairs"]) for name in ("poor", "middle", "rich") for row in search_rows(f"search_{name}")}
    rows = [tier.up_to for tier in baselines.tiers]
    assert sorted(searched) == [few for few in rows if few - 1 not in rows]  # but for the step between two sizes
    assert f"on five pairs with {min(searched)} to {max(searched):,} training pairs" in FLAT
    patience = [tier.train.validate_every * tier.train.patience for tier in baselines.tiers]
    assert f"{min(patience)} steps for the poorest pairs and {max(patience):,} for the richest" in FLAT
    for name in ("poor", "middle", "rich"):
        for row in search_rows(f"search_{name}"):
            tier = baselines.tier(int(row["train_pairs"]))
            searching = load_config(["recipes=freesoft38/dense", f"baselines=freesoft38_search_{name}"]).baselines
            candidate = searching.search.candidate(row["candidate"]).applied_to(tier)
            of_the_table = decided(row["pair"]) == row["candidate"]
            assert (candidate == tier) == of_the_table, row


def test_what_the_text_says_of_the_search_is_in_its_rows():
    losses, best_steps = {}, {}
    for name in ("rich", "poor", "middle"):
        for row in search_rows(f"search_{name}"):
            losses[name, row["pair"], row["candidate"]] = float(row["nats_per_character"])
            best_steps[row["pair"], row["candidate"]] = int(row["best_step"])

    def gain(name, pair, worse, better):
        """The share of the worse loss by which the other one is lower."""
        return 1 - losses[name, pair, better] / losses[name, pair, worse]

    assert min(gain("rich", pair, "small_d1", "base_d1") for pair in ("fr-en", "ca-en")) > 0
    assert min(gain("poor", pair, "base_d3", "small_d3") for pair in ("lv-en", "ta-en")) > 0
    assert not [key for key in losses if key[1] == "km-en" and key[2].endswith("_fast")]
    twice = [("rich", "fr-en", "base_d1"), ("rich", "ca-en", "base_d1"), ("poor", "lv-en", "small_d3")]
    assert min(gain(name, pair, f"{slow}_fast", slow) for name, pair, slow in twice) > 0
    assert gain("poor", "ta-en", "small_d3", "small_d3_fast") > 0
    assert f"is better than 0.1 by {gain('middle', 'km-en', 'base_d1', 'base_d3'):.0%}".replace("%", " %") in FLAT
    assert 2.5 < best_steps["km-en", "base_d3"] / best_steps["km-en", "base_d1"] < 3.5
    assert gain("middle", "ca-en", "base_d3", "base_d1") > 0
    apart = best_steps["ca-en", "base_d3"] - best_steps["ca-en", "base_d1"]  # both the last validation of 12 M tokens
    assert 0 <= apart < load_config(["recipes=freesoft38/dense"]).baselines.tier(32_994).train.validate_every
    assert f"is ahead of 0.3 by {gain('poor', 'lv-en', 'small_d3', 'small_d5'):.1%}".replace("%", " %") in FLAT


def test_fast_candidates_have_twice_the_rate_and_a_longer_warm_up():
    ratios = set()
    for name, slow in (("rich", "base_d1"), ("poor", "small_d3")):
        candidates = load_config(["recipes=freesoft38/dense", f"baselines=freesoft38_search_{name}"]).baselines.search
        tier = load_config(["recipes=freesoft38/dense"]).baselines.tier(747)
        of_both = [candidates.candidate(one).applied_to(tier).train for one in (f"{slow}_fast", slow)]
        assert of_both[0].learning_rate == 2 * of_both[1].learning_rate
        ratios.add(of_both[0].warmup_steps / of_both[1].warmup_steps)
    assert ratios == {2, 3}
    assert "Twice the rate, with a warm-up two or three times as long, is worse" in FLAT


def test_the_settings_are_those_of_the_page():
    config = load_config(["recipes=freesoft38/moe_8e"])
    tiers = config.baselines.tiers
    assert (config.train.optimizer, config.train.warmup_steps, config.train.label_smoothing) == ("adamw", 150, 0.1)
    assert {tier.train.label_smoothing for tier in tiers} == {0.1}
    warm_ups = {tier.train.warmup_steps for tier in tiers}
    assert f"a warm-up of 150 steps (bilingual models: {min(warm_ups)} to {max(warm_ups)}), label smoothing 0.1" in FLAT
    assert (config.decode.beam, config.model.dropout) == (4, 0.1)
    assert (config.model.moe.gate.balance_weight, config.model.moe.gate.capacity_factor) == (0.01, 1)
    assert "beams of 4 with the length normalisation of GNMT. Multilingual models have dropout 0.1" in FLAT
    below, above = (config.baselines.tier(rows) for rows in (3751, 3752))
    for name in ("dim", "dropout"):
        assert getattr(below.model, name) != getattr(above.model, name)
    assert below.train.learning_rate != above.train.learning_rate
    assert "except right above 3,751, where size, dropout and learning rate jump" in FLAT


def test_no_multilingual_model_had_stopped_improving():
    for path in ARCHIVES.glob("*_s?.tar.xz"):
        (ledger,) = json.loads(read_archive(path)["run.json"])["systems"]["moe"]
        assert ledger["best_step"] == ledger["steps"]
    assert "Every multilingual model was still improving at its end." in FLAT


def test_what_the_text_says_of_averaging_is_in_its_rows():
    losses = {(row["pair"], row["candidate"]): float(row["nats_per_character"]) for row in search_rows("windows")}
    for pair in ("ta-en", "as-en"):
        excess = [100 * (losses[pair, f"steps_{n}"] / losses[pair, "steps_500"] - 1) for n in (100, 50)]
        assert f"by {excess[0]:.1f} and {excess[1]:.1f} % on `{pair}`" in FLAT
    record = json.loads(read_archive(ARCHIVES / "bilingual_1.tar.xz")["run.json"])
    poorest = sorted(record["train_pairs"], key=record["train_pairs"].__getitem__)[:5]
    steps = [ledger["best_step"] for ledger in record["systems"]["bilingual"] if ledger["pair"] in poorest]
    assert f"after {min(steps)} to {max(steps)} steps" in FLAT
    decay = load_config(["recipes=freesoft38/dense"]).baselines.tier(629).train.ema
    shares = [100 * decay ** (step - 1) for step in (max(steps), min(steps))]
    assert len(steps) == 5
    assert f"still hold {shares[0]:.0f} to {shares[1]:.0f} % of the first weights" in FLAT


def decided(pair):
    """The candidate with the lowest loss of a pair's longest search."""
    name = {"lv-en": "poor", "ta-en": "poor", "ca-en": "middle", "km-en": "middle", "fr-en": "rich"}[pair]
    rows = [row for row in search_rows(f"search_{name}") if row["pair"] == pair]
    return min(rows, key=lambda row: float(row["nats_per_character"]))["candidate"]


def test_the_text_is_made_of_what_the_page_says():
    data = ROOT / "data" / "freesoft38"
    manifest = yaml.safe_load((data / "manifest.yaml").read_text(encoding="utf-8"))
    total = sum(file["rows"] for file in manifest["files"] if file["split"] == "train")
    table = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| [\d,]+ \|", (data / "README.md").read_text(), re.MULTILINE)
    rows = {name: int(number.replace(",", "")) for name, number in table}
    rows["ddtp"] = total - sum(rows.values())
    shares = {name: f"{100 * number / total:.0f} %" for name, number in rows.items()}
    parts = f"package descriptions ({shares['ddtp']}), LibreOffice's help ({shares['lohelp']}), a game"
    last_parts = f"({shares['wesnoth']}), manual pages ({shares['man']}) and GNOME's help ({shares['gnomehelp']})"
    assert f"{parts} {last_parts}." in FLAT
    assert "two thirds of the training text are neither" in FLAT
    assert (rows["lohelp"] + rows["gnomehelp"]) / total == pytest.approx(1 / 3, abs=0.02)
    train_pairs = json.loads(read_archive(ARCHIVES / "dense_s1.tar.xz")["run.json"])["train_pairs"]
    own = [file["columns"][0] for file in manifest["files"] if file["path"].startswith("tail/test.")]
    poorest = resource_classes(train_pairs)["low"]
    assert (len(own), sum(f"{language}-en" in poorest for language in own)) == (11, 9)
    assert "nine of the 11 pairs that are tested on GNOME's documentation are in the poorest third" in FLAT
    assert f"The text is {sum(train_pairs.values()) / 1e6:.2f} million sentence pairs" in FLAT


def test_catalan_is_as_much_of_a_training_as_the_page_says():
    train_pairs = json.loads(read_archive(ARCHIVES / "dense_s1.tar.xz")["run.json"])["train_pairs"]
    mixture = load_config(["recipes=freesoft38/dense"]).batch.mixture
    (phase,) = phases(mixture, list(train_pairs), units([[("", rows)] for rows in train_pairs.values()]))
    share = phase.probabilities[list(train_pairs).index("ca-en")]
    assert (mixture.temperature, mixture.max_repeats) == (3, 10)
    assert f"Catalan, for example, is {100 * share:.1f} % of what a multilingual model reads" in FLAT
    ledgers = json.loads(read_archive(ARCHIVES / "bilingual_1.tar.xz")["run.json"])["systems"]["bilingual"]
    models = {ledger["pair"]: ledger for ledger in ledgers}
    (whole,) = json.loads(read_archive(ARCHIVES / "dense_s1.tar.xz")["run.json"])["systems"]["moe"]
    of_pair = {pair: whole["tokens"] * phase.probabilities[list(train_pairs).index(pair)] for pair in models}
    times = [f"{models[pair]['tokens'] / of_pair[pair]:.0f}" for pair in ("km-en", "ca-en")]
    assert f"of Khmer and Catalan read {times[0]} and {times[1]} times as many target tokens of their pair" in FLAT
    sizes = [round(model["tokens"] / model["steps"], digits) for model, digits in ((models["ca-en"], -1), (whole, -2))]
    steps = f"makes {models['ca-en']['steps']:,} steps of {sizes[0]:.0f} tokens, `dense` {whole['steps']:,} steps of"
    assert f"{steps} {sizes[1]:,.0f}." in FLAT
    rows = np.array([*train_pairs.values()])
    times_read = phase.probabilities * rows.sum() * 12 / 35 / rows  # of 35 M target tokens, 12 M are read
    assert "The text has 35 million target tokens. A multilingual model reads 12 million" in FLAT
    assert {f"{times:.1f}" for times in times_read[rows.argsort()[:5]]} == {"3.4"}
    assert "repeat as well, 3.4 times each; of the richest pair one row in seven is read" in FLAT
    richest = times_read[rows.argmax()]
    assert round(1 / richest) == 7
    assert f"The richest pair is read {richest:.2f} times in this training and the five poorest 3.4 times;" in FLAT
    poorest = {f"{10 * times:.0f}" for times in times_read[rows.argsort()[:5]]}
    assert poorest == {"34"}
    assert f"with ten times the budget it would be {10 * richest:.1f} and 34 times." in FLAT


def test_what_the_text_says_of_the_rates_is_in_their_rows():
    deep = load_config(["recipes=freesoft38/dense_12l"])
    rows = [row for row in rows_of("rates") if row["recipe"] != "freesoft38_dense_12l"]
    losses = {(row["recipe"], row["learning_rate"]): float(row["validation_loss"]) for row in rows}
    shallow = [f"freesoft38_{name}" for name in ("dense", "moe_8e", "moe_32e")]
    assert {recipe for recipe, _ in losses} == {*shallow}
    assert {rate for _, rate in losses} == {"0.0015", "0.003", "0.006"}
    for rate in ("0.003", "0.006"):
        assert f"{fmean(losses[recipe, rate] for recipe in shallow):.3f}" == "4.305"
    gains = [losses[recipe, "0.003"] - losses[recipe, "0.006"] for recipe in shallow]
    assert f"are better with the higher one, by {gains[0]:.3f} and {gains[1]:.3f}, and `moe_32e`" in FLAT
    assert f"`moe_32e` is worse by {-gains[2]:.3f}." in FLAT
    assert {load_config([f"recipes=freesoft38/{name[11:]}"]).train.learning_rate for name in shallow} == {0.003}
    scores = {}
    for row in rows:
        scores.setdefault(row["learning_rate"], []).append(f"{float(row['bleu']):.2f}")
    spans = [f"{min(scores[rate])} to {max(scores[rate])}" for rate in ("0.003", "0.006")]
    assert f"On the test sets 0.003 was ahead of 0.006 ({spans[0]} BLEU against {spans[1]})" in FLAT
    bleu = {(row["recipe"], row["learning_rate"]): float(row["bleu"]) for row in rows}
    best = {recipe: max(("0.0015", "0.003", "0.006"), key=lambda rate: bleu[recipe, rate]) for recipe in shallow}
    assert [*best.values()] == ["0.003", "0.003", "0.0015"]
    more = f"{bleu[shallow[2], '0.0015'] - bleu[shallow[2], '0.003']:.2f}"
    assert f"(For `moe_32e` the test sets favour 0.0015, by {more} BLEU.)" in FLAT
    assert f"It gave `dense` and `moe_8e` the most BLEU, where `moe_32e` had {more} more with 0.0015." in FLAT
    ahead = [f"{bleu[recipe, '0.0015'] - bleu[shallow[0], '0.0015']:.2f}" for recipe in shallow[1:]]
    assert f"With that rate both mixtures were ahead of `dense`, by {ahead[0]} and {ahead[1]} BLEU;" in FLAT
    assert max(abs(bleu[recipe, "0.003"] - bleu[shallow[0], "0.003"]) for recipe in shallow[1:]) < 0.06
    assert f"The recipes have 0.003, since the warm-up of {deep.train.warmup_steps} steps is a third" in FLAT


def test_what_the_text_says_of_the_rates_of_the_deep_model_is_in_their_rows():
    searched = {row["learning_rate"]: row for row in rows_of("rates") if row["recipe"] == "freesoft38_dense_12l"}
    assert [*searched] == ["0.002", "0.004", "0.006", "0.008"]
    assert "Rates below 0.002 were not tried." in FLAT
    losses = {rate: float(row["validation_loss"]) for rate, row in searched.items()}
    worse = {rate: f"{loss - losses['0.004']:.2f}" for rate, loss in losses.items()}
    assert f"0.004 is better than that by {worse['0.002']} nats, and than 0.006 and 0.008 by {worse['0.006']}" in FLAT
    assert f"by {worse['0.006']} and {worse['0.008']} (commits" in FLAT
    rate = load_config(["recipes=freesoft38/dense_12l"]).train.learning_rate
    assert f"with {rate:g}, now the rate of the recipe" in FLAT
    runs = {row["system"]: row for row in rows_of("runs")}
    (first,), again = rows_of("dense_12l_first"), runs["dense_12l_s1"]
    assert (first["learning_rate"], again["learning_rate"]) == ("0.002", f"{rate:g}")
    lower = float(first["validation_loss"]) - float(again["validation_loss"])
    scores = [float(row["bleu"]) for row in (again, first)]
    assert f"lower than that of the first one by {lower:.2f} nats, but its BLEU is {scores[0]:.2f} where" in FLAT
    assert f"had {scores[1]:.2f} (`recipes/freesoft38/dense_12l_first.csv`, commit {first['commits'][:7]})" in FLAT
    behind = [float(runs["dense_s1"]["bleu"]) - score for score in scores]
    assert f"commit {first['commits'][:7]}), {behind[0]:.1f} and {behind[1]:.1f} behind `dense`." in FLAT
    low, high = (f"{losses[rate]:.3f} and {float(searched[rate]['bleu']):.2f} BLEU" for rate in ("0.002", "0.008"))
    assert f"`dense_12l` has a loss of {low} with 0.002, and {high} with 0.008." in FLAT
    used = {row["learning_rate"]: float(row["difference"]) for row in rows_of("source_use")}
    assert [*used] == [*searched]
    of_low, *of_higher = (f"{nats:.2f}" for nats in used.values())
    words = f"higher than beside its own by {of_low} nats with 0.002, and by {of_higher[0]}, {of_higher[1]}"
    assert f"{words} and {of_higher[2]} with 0.004, 0.006 and 0.008 (the first 100 sentences" in FLAT
    assert {(row["pairs"], row["sentences"]) for row in rows_of("source_use")} == {("38", "3800")}
