"""docs/experiment.md: its commands, and the rehearsal's table, which lies beside the recipes."""

import csv
import json
import re
import shlex
from statistics import fmean

import pytest

from bench.experiment.__main__ import parse
from bench.experiment.archive import read_archive
from bench.experiment.contrasts import PRIMARY, read_contrast
from bench.published.experts import ARCHIVE
from eval.number_format import signed
from eval.records.specialisation import SPECIALISATION
from pipeline.config import ROOT, load_config
from pipeline.sweep.command import plan
from pipeline.sweep.config import load_sweep
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "experiment.md").read_text(encoding="utf-8")
REHEARSAL = TEXT.partition("## What did the rehearsal show?")[2]
FLAT = re.sub(r"\s+", " ", TEXT)
SWEEPS = {name: line for line, name in re.findall(r"^(make sweep EXPERIMENT=(\w+) .*)$", TEXT, re.MULTILINE)}


def rows_of(name):
    with (ROOT / "recipes" / "freesoft38" / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


ROWS = rows_of("rehearsal")


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


@pytest.mark.parametrize("name", ["freesoft38_rates", "freesoft38_ablations", "freesoft38_rehearsal"])
def test_a_shorter_training_averages_over_the_same_share_of_its_steps(name):
    common = dict(word.split("=", 1) for word in load_sweep([f"experiment={name}"]).common)
    whole = load_config(["recipes=freesoft38/dense"]).train
    windows = [(1 - whole.ema) * whole.max_tokens, (1 - float(common["train.ema"])) * int(common["train.max_tokens"])]
    assert windows[1] == pytest.approx(windows[0], rel=0.01)
    assert name == "freesoft38_rehearsal" or f"{common['train.ema']} for the " in TEXT


@pytest.mark.parametrize("recipe", sorted(path.stem for path in (ROOT / "recipes" / "freesoft38").glob("*.yaml")))
def test_all_models_are_averaged_and_multiply_in_the_precision_of_the_page(recipe):
    ((precision, decay),) = re.findall(r"\(`train.precision=(\w+)`, `train.ema=([\d.]+)`\)", TEXT)
    config = load_config([f"recipes=freesoft38/{recipe}"])
    assert config.baselines.tiers
    for train in (config.train, *(tier.train for tier in config.baselines.tiers)):
        assert (train.precision, train.ema) == (precision, float(decay))


def test_the_primary_contrasts_are_of_its_systems_and_the_layers_with_experts_are_those_of_the_page():
    points = planned(SWEEPS["freesoft38"]).points
    systems = {point.id.rpartition("_s")[0]: point.config.model for point in points}
    assert {label for text in PRIMARY for _, label in read_contrast(text).terms} <= {"bilingual", *systems}
    assert "With 3+3 layers one layer in three has experts (layer 2), with 6+6 one in two (2, 4 and 6)." in re.sub(
        r"\s+", " ", TEXT
    )
    for name, layers in (("moe_8e", [2]), ("moe_8e_12l", [2, 4, 6])):
        model = systems[name]
        with_experts = [n for n in range(1, model.encoder_layers + 1) if model.is_moe(n)]
        assert with_experts == layers


@pytest.mark.parametrize(("name", "number"), [("freesoft38_rates", 20), ("freesoft38_ablations", 9)])
def test_the_sweeps_before_and_after_it_are_there(name, number):
    assert len(planned(SWEEPS[name]).points) == number


def test_the_commands_of_bench_experiment_are_read(monkeypatch):
    commands = re.findall(r"^\.venv/bin/python -m bench\.experiment (.*)$", TEXT, re.MULTILINE)
    options, contrasts = {}, []
    for command in commands:
        monkeypatch.setattr("sys.argv", ["bench.experiment", *shlex.split(command)])
        arguments = parse()
        options[arguments.command] = arguments
        contrasts += [arguments] if arguments.command == "contrasts" else []
    assert options.keys() == {"keep", "baselines", "restore", "scaling", "contrasts", "systems", "tokens", "decoding"}
    assert [(len(one.runs), one.of, one.test_set) for one in contrasts] == [
        (4, None, "own"),
        (2, ["moe_8e - dense"], "ntrex4"),
    ]
    assert len(options["scaling"].runs) == 3
    assert "Five candidates" in TEXT
    baselines = load_config(["recipes=freesoft38/dense"]).baselines
    assert len(baselines.search.candidates) == 5
    assert [tier.train.validate_every * tier.train.patience for tier in baselines.tiers] == [300, 600, 1200]
    config = load_config(options["baselines"].overrides)
    assert (config.baselines.search, config.pairs) == (None, ["da-en", "de-en"])
    for command in re.findall(r"^make train .*$", TEXT, re.MULTILINE):
        assert not load_config(overrides_of("train", command)).baselines.tiers


def test_each_part_of_the_search_is_of_its_pairs_and_budget():
    commands = re.findall(r"^make baselines .*$", TEXT, re.MULTILINE)
    configs = [load_config(overrides_of("baselines", command)) for command in commands]
    assert [[*config.pairs] for config in configs] == [
        ["fr-en", "ca-en"],
        ["ca-en", "km-en"],
        ["lv-en", "ta-en"],
    ]
    for config, budget in zip(configs, (2_400_000, 12_000_000, 12_000_000), strict=True):
        assert config.baselines.search.pairs == len(config.pairs)
        assert {tier.train.max_tokens for tier in config.baselines.variants()} == {budget}


def test_the_table_is_that_of_the_file():
    """Systems by their means over seeds, and the bilingual models."""
    rows = re.findall(
        r"^\| `(\w+)`[^|]*\|[^|]*\|[^|]*\|[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \|([^|]*)\|", REHEARSAL, re.MULTILINE
    )
    means = {row["id"]: row for row in ROWS if row["kind"] != "run" or not re.search(r"_s\d$", row["id"])}
    assert {name: score for name, score, _ in rows} == {
        name: f"{float(row['bleu']):.2f}" for name, row in means.items()
    }
    for name, _, delta in rows:
        expected = f"{float(means[name]['delta_bleu']):+.2f}" if means[name]["delta_bleu"] else ""
        assert delta.strip() == expected


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


def test_figures_and_links_are_there():
    links = [link for link in re.findall(r"\]\(([^)]*)\)", TEXT) if not link.startswith("https:")]
    assert links
    assert all((ROOT / "docs" / link.partition("#")[0]).is_file() for link in links)
