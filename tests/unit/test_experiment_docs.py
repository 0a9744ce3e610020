"""docs/experiment.md and the pages beside it: their commands, and what they say of the rehearsal."""

import re
import shlex

import pytest

from bench.experiment.__main__ import parse
from bench.experiment.contrasts import PRIMARY, read_contrast
from pipeline.config import ROOT, load_config
from pipeline.sweep.command import plan
from pipeline.sweep.config import load_sweep
from tests.experiment_tables import rows_of, words_of
from tests.make import overrides_of

NAMES = ("experiment", "experiment-commands", "experiment-mixtures", "experiment-searches")
PAGES = [ROOT / "docs" / f"{name}.md" for name in NAMES]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
FLAT = words_of(*NAMES)
SWEEPS = {name: line for line, name in re.findall(r"^(make sweep EXPERIMENT=(\w+) .*)$", TEXT, re.MULTILINE)}
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


@pytest.mark.parametrize(("name", "number"), [("freesoft38_rates", 21), ("freesoft38_ablations", 10)])
def test_the_sweeps_before_and_after_it_are_there(name, number):
    assert len(planned(SWEEPS[name]).points) == number


def test_the_commands_of_bench_experiment_are_read(monkeypatch):
    (systems,) = re.findall(r'^systems="(.*)"$', TEXT, re.MULTILINE)
    text = TEXT.replace("$systems", systems)
    commands = re.findall(r"^\.venv/bin/python -m bench\.experiment (.*)$", text, re.MULTILINE)
    in_the_table = re.findall(r"^\|.*`python -m bench\.experiment ([^`]*)`", TEXT, re.MULTILINE)
    assert len(in_the_table) == 6
    commands += [f"{command} RUN_DIR" for command in in_the_table]
    options, contrasts = {}, []
    for command in commands:
        monkeypatch.setattr("sys.argv", ["bench.experiment", *shlex.split(command)])
        arguments = parse()
        options.setdefault(arguments.command, arguments)
        contrasts += [arguments] if arguments.command == "contrasts" else []
    measuring = {"gains", "scaling", "contrasts", "systems", "tokens", "decoding", "source"}
    assert options.keys() == {"keep", "baselines", "restore", *measuring}
    assert [(len(one.runs), one.of, one.test_set) for one in contrasts] == [
        (7, None, "own"),
        (7, ["moe_32e - dense", "moe_32e_12l - dense_12l"], "own"),
        (7, None, "ntrex4"),
        (4, None, "own"),
        (2, ["moe_8e - dense"], "ntrex4"),
    ]
    assert len(options["scaling"].runs) == 7
    config = load_config(options["baselines"].overrides)
    assert (config.baselines.search, len(config.pairs)) == (None, 8)
    for command in re.findall(r"^make train .*$", TEXT, re.MULTILINE):
        assert not load_config(overrides_of("train", command)).baselines.tiers


def test_each_part_of_the_search_is_of_its_pairs_and_budget():
    commands = re.findall(r"^make baselines .*$", TEXT, re.MULTILINE)
    configs = [load_config(overrides_of("baselines", command)) for command in commands]
    assert [[*config.pairs] for config in configs] == [
        ["fr-en", "ca-en"],
        ["ca-en", "km-en"],
        ["lv-en", "ta-en"],
        ["ta-en", "as-en"],
    ]
    for config, budget in zip(configs, (2_400_000, *[12_000_000] * 3), strict=True):
        assert config.baselines.search.pairs == len(config.pairs)
        assert {tier.train.max_tokens for tier in config.baselines.variants()} == {budget}


def test_the_text_on_the_rehearsal_is_that_of_its_rows():
    scores = {row["id"]: float(row["bleu"]) for row in ROWS if row["bleu"]}
    gains = [scores[f"moe_8e_s{seed}"] - scores[f"dense_s{seed}"] for seed in (1, 2)]
    assert f"ahead of `dense` by {gains[0]:.2f} and {gains[1]:.2f} BLEU with two seeds, at a mean of 3.7;" in FLAT
    assert {f"{scores[name]:.1f}" for name in ("dense", "moe_8e")} == {"3.7"}
    for name in ("dense", "moe_8e"):
        assert scores[f"{name}_s2"] - scores[f"{name}_s1"] == pytest.approx(0.4, abs=0.1)


def test_figures_and_links_are_there():
    links = [link for link in re.findall(r"\]\(([^)]*)\)", TEXT) if not link.startswith("https:")]
    assert links
    assert all((PAGES[0].parent / link.partition("#")[0]).is_file() for link in links)
