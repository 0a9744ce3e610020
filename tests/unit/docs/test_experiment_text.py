"""docs/experiment.md: what its text says of results is in the rows of their CSVs."""

import csv
import json
import re
from statistics import fmean

from bench.experiment.archive import read_archive
from bench.experiment.contrasts import PRIMARY
from bench.published.experts import ARCHIVE
from eval.number_format import signed
from eval.records.scores import METRICS
from eval.records.specialisation import SPECIALISATION
from pipeline.config import ROOT, load_config

FLAT = re.sub(r"\s+", " ", (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8"))


def rows_of(name):
    return read_rows(ROOT / "recipes" / "freesoft38" / f"{name}.csv")


def search_rows(name):
    return read_rows(ROOT / "configs" / "baselines" / f"freesoft38_search_{name}.csv")


def read_rows(path):
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_bilingual_models_have_tiers_at_the_searched_pairs_and_the_patience_of_the_page():
    baselines = load_config(["recipes=freesoft38/dense"]).baselines
    assert baselines.search is None
    searched = {int(row["train_pairs"]) for name in ("poor", "middle", "rich") for row in search_rows(name)}
    rows = [tier.up_to for tier in baselines.tiers]
    assert sorted(searched) == [few for few in rows if few - 1 not in rows]  # but for the step between two sizes
    assert f"on five pairs with {min(searched)} to {max(searched):,} training pairs" in FLAT
    patience = [tier.train.validate_every * tier.train.patience for tier in baselines.tiers]
    assert f"{min(patience)} steps for the poorest pairs and {max(patience):,} for the richest" in FLAT
    for name in ("poor", "middle", "rich"):
        for row in search_rows(name):
            tier = baselines.tier(int(row["train_pairs"]))
            searching = load_config(["recipes=freesoft38/dense", f"baselines=freesoft38_search_{name}"]).baselines
            candidate = searching.search.candidate(row["candidate"]).applied_to(tier)
            of_the_table = decided(row["pair"]) == row["candidate"]
            assert (candidate == tier) == of_the_table, row


def test_what_the_text_says_of_the_search_is_in_its_rows():
    losses, best_steps = {}, {}
    for name in ("rich", "poor", "middle"):
        for row in search_rows(name):
            losses[name, row["pair"], row["candidate"]] = float(row["nats_per_character"])
            best_steps[row["pair"], row["candidate"]] = int(row["best_step"])

    def gain(name, pair, worse, better):
        """The share of the worse loss by which the other one is lower."""
        return 1 - losses[name, pair, better] / losses[name, pair, worse]

    assert min(gain("rich", pair, "small_d1", "base_d1") for pair in ("fr-en", "ca-en")) > 0
    assert min(gain("poor", pair, "base_d3", "small_d3") for pair in ("lv-en", "ta-en")) > 0
    twice = [("rich", "fr-en", "base_d1"), ("rich", "ca-en", "base_d1"), ("poor", "lv-en", "small_d3")]
    assert min(gain(name, pair, f"{slow}_fast", slow) for name, pair, slow in twice) > 0
    assert gain("poor", "ta-en", "small_d3", "small_d3_fast") > 0
    assert f"is better than 0.1 by {gain('middle', 'km-en', 'base_d1', 'base_d3'):.0%}".replace("%", " %") in FLAT
    assert 2.5 < best_steps["km-en", "base_d3"] / best_steps["km-en", "base_d1"] < 3.5
    assert gain("middle", "ca-en", "base_d3", "base_d1") > 0
    apart = best_steps["ca-en", "base_d3"] - best_steps["ca-en", "base_d1"]  # both the last validation of 12 M tokens
    assert 0 <= apart < load_config(["recipes=freesoft38/dense"]).baselines.tier(32_994).train.validate_every
    assert f"is better than 0.3 by {gain('poor', 'lv-en', 'small_d3', 'small_d5'):.1%}".replace("%", " %") in FLAT


def decided(pair):
    """The candidate with the lowest loss of a pair's longest search."""
    name = {"lv-en": "poor", "ta-en": "poor", "ca-en": "middle", "km-en": "middle", "fr-en": "rich"}[pair]
    rows = [row for row in search_rows(name) if row["pair"] == pair]
    return min(rows, key=lambda row: float(row["nats_per_character"]))["candidate"]


def test_what_the_text_says_of_the_rates_is_in_their_rows():
    losses = {(row["recipe"], row["learning_rate"]): float(row["validation_loss"]) for row in rows_of("rates")}
    shallow = [f"freesoft38_{name}" for name in ("dense", "moe_8e", "moe_32e")]
    assert {recipe for recipe, _ in losses} == {*shallow}
    assert {rate for _, rate in losses} == {"0.0015", "0.003", "0.006"}
    for rate in ("0.003", "0.006"):
        assert f"{fmean(losses[recipe, rate] for recipe in shallow):.3f}" == "4.305"
    gains = [losses[recipe, "0.003"] - losses[recipe, "0.006"] for recipe in shallow]
    assert f"are better with the higher one, by {gains[0]:.3f} and {gains[1]:.3f}, and `moe_32e`" in FLAT
    assert f"`moe_32e` is worse by {-gains[2]:.3f}." in FLAT
    assert {load_config([f"recipes=freesoft38/{name[11:]}"]).train.learning_rate for name in shallow} == {0.003}
    deep = load_config(["recipes=freesoft38/dense_12l"]).train
    assert f"whose recipes have {deep.learning_rate:g}." in FLAT
    assert f"The recipes have 0.003, since the warm-up of {deep.warmup_steps} steps is a third" in FLAT


def test_the_text_on_the_first_models_is_that_of_their_rows():
    rows = rows_of("systems")
    assert [row["system"] for row in rows] == ["dense", "moe_8e", "moe_32e"]
    assert {row["num_seeds"] for row in rows} == {"1"}
    dense, eight, many = (f"{float(row['validation_loss']):.3f}" for row in rows)
    assert eight < dense == many
    for row in rows:
        assert 0.45 < float(row["tokens_per_second"]) / float(row["planned_tokens_per_second"]) < 0.55
        assert all(f"{commit[:7]}" in FLAT for commit in row["commits"].split())
    first, second = (means_of("own", contrast) for contrast in ("moe_8e - dense", "moe_32e - moe_8e"))
    losses = [-float(contrast["bleu"]["delta"]) for contrast in (first, second)]
    assert f"`moe_8e` has {losses[0]:.2f} BLEU less than `dense` (the interval just reaches zero)" in FLAT
    assert f"and `moe_32e` {losses[1]:.2f} less than `moe_8e` (it does not)" in FLAT
    assert 0 < float(first["bleu"]["ci_high"]) < 0.05
    assert max(float(row["ci_high"]) for row in (second["bleu"], first["chrf++"], second["chrf++"])) < 0
    unplanned = means_of("unplanned", "moe_32e - dense")["bleu"]
    delta, *interval = (signed(float(unplanned[name]), 2) for name in ("delta", "ci_low", "ci_high"))
    assert f"That `moe_32e` is {delta.lstrip('−')} BLEU behind `dense` ([{interval[0]}, {interval[1]}])" in FLAT
    assert "moe_32e - dense" not in PRIMARY
    news = rows_of("systems_ntrex4")
    assert {row["num_pairs"] for row in news} == {"37"}
    assert {f"{float(row['bleu']):.1f}" for row in news} == {"0.7", "0.8"}
    lead = means_of("ntrex4", "moe_8e - dense")["chrf++"]
    delta, low, high = (f"{float(lead[name]):.2f}" for name in ("delta", "ci_low", "ci_high"))
    assert f"here `moe_8e` is ahead of `dense`, by {delta} chrF++ ([{low}, {high}])" in FLAT


def test_what_the_text_says_of_tokens_to_a_loss_is_in_their_rows():
    saved = {}
    for row in rows_of("tokens"):
        saved.setdefault(row["system"], []).append(100 * (1 - float(row["share_of_first"])))
    few, many = saved["moe_8e"], saved["moe_32e"]
    assert f"Here 8 experts save {min(few):.1f} to {max(few):.1f} % of the tokens of `dense`." in FLAT
    assert f"32 experts save {min(many):.1f} to {max(many):.1f} %, and to the lowest of these" in FLAT
    assert few[-1] > many[-1]
    losses = [float(row["loss"]) for row in rows_of("tokens") if row["system"] == "dense"]
    assert losses == sorted(losses, reverse=True)


def test_the_answers_are_those_of_the_rows():
    for contrast, metrics in (("moe_8e - dense", ("bleu", "chrf++")), ("moe_32e - moe_8e", ("bleu",))):
        rows = means_of("own", contrast)
        for metric in metrics:
            delta, low, high = (signed(float(rows[metric][name]), 2) for name in ("delta", "ci_low", "ci_high"))
            assert f"{delta} {METRICS[metric].title} [{low}, {high}]" in FLAT
            assert rows[metric]["num_seeds"] == "1"
    thirds = [row for row in rows_of("contrasts_own") if row["contrast"] == "moe_8e - dense"]
    assert max(float(row["delta"]) for row in thirds if row["resource"] in ("high", "medium", "low")) < 0


def test_what_the_text_says_of_the_fit_is_in_its_rows():
    rows = {row["system"].removesuffix("_s1"): row for row in rows_of("scaling")}
    assert [*rows] == ["dense", "moe_8e", "moe_32e"]
    assert {(row["num_seeds"], row["times"]) for row in rows.values()} == {("1", "10")}
    misses = [abs(float(row["backtest"]) - float(row["loss"])) for row in rows.values()]
    assert f"It misses the loss by {misses[0]:.3f}, {misses[1]:.3f} and {misses[2]:.3f}, and for `dense` and" in FLAT
    outside = [
        name
        for name, row in rows.items()
        if not float(row["backtest_low"]) < float(row["loss"]) < float(row["backtest_high"])
    ]
    assert outside == ["dense", "moe_8e"]
    now, later = (f"{float(rows['dense'][name]):.2f}" for name in ("loss", "later"))
    assert f"says a loss of {later} in place of {now}, and" in FLAT
    assert {f"{10 * float(row['tokens']) / 1e6:.0f}" for row in rows.values()} == {"120"}


def means_of(file, contrast):
    """The rows of all pairs, by metric. file: of recipes/freesoft38, without `contrasts_`."""
    rows = [row for row in rows_of(f"contrasts_{file}") if row["contrast"] == contrast]
    return {row["metric"]: row for row in rows if row["resource"] == "all"}


def test_what_the_text_says_of_the_experts_is_in_their_archive():
    layers = json.loads(read_archive(ARCHIVE)[SPECIALISATION])["layers"]
    encoder, decoder = (layer["information"] for layer in layers.values())
    pieces = f"explains {100 * encoder['piece']:.0f} % of the encoder's routing and {100 * decoder['piece']:.0f} % of"
    assert f"{pieces} the decoder's, its language {100 * encoder['language']:.1f}" in FLAT
    assert f" and {100 * decoder['language']:.1f} % ([what that means]" in FLAT
    for layer, expert, examples in (
        ("encoder.2", 1, "▁de ▁la ▁di ▁da ▁do ▁el"),
        ("encoder.2", 2, ". 。 ▁។"),
        ("encoder.2", 3, ", 、 ▁e ▁i ▁in ▁в </s>"),
        ("encoder.2", 4, "を 을"),
        ("encoder.2", 5, "s e t i r n"),
        ("encoder.2", 6, "▁un ▁una ▁um ▁een ▁bir"),
        ("encoder.2", 7, "c x v p b d"),
        ("decoder.2", 0, "e c D a ▁C ▁F"),
        ("decoder.2", 1, "ed ing ▁used ▁selected ▁inserted"),
        ("decoder.2", 2, "</s> , ▁and ▁or"),
        ("decoder.2", 3, ". ▁objects ▁values ▁documents"),
        ("decoder.2", 4, "▁you ▁it ▁that ▁if ▁which"),
        ("decoder.2", 5, "▁the ▁a ▁an ▁your ▁each"),
        ("decoder.2", 6, "▁of ▁in ▁for ▁on ▁is ▁are ▁be"),
        ("decoder.2", 7, "▁document ▁object ▁file ▁page"),
    ):
        assert {*examples.split()} <= {piece["text"] for piece in layers[layer]["experts"][expert]["pieces"]}
