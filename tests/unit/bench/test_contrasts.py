"""Contrasts of systems: sums of scores with signs, and intervals that count test sentences and seeds."""

import csv
import json
import shutil
from statistics import fmean

import pytest

from bench.experiment import __main__ as command
from bench.experiment import contrasts
from eval.records.scores import load_scores
from eval.score.run import write_scores
from tests.unit.eval.conftest import config_of, make_run  # noqa: F401 - a fixture

TAIL, MULTI_WAY = ("hr-en",), ("de-en", "fr-en", "it-en", "es-en", "nl-en", "pl-en")
# share of the words that the model of each seed loses
DAMAGE = {"dense": (0.40, 0.20), "moe_8e": (0.35, 0.16), "deep": (0.30, 0.14), "deep_moe": (0.22, 0.08)}
SHAPES = {"dense": (0, 3), "moe_8e": (8, 3), "deep": (0, 6), "deep_moe": (8, 6)}  # experts, layers
INTERACTION = "deep_moe - deep - moe_8e + dense"


@pytest.fixture
def runs(make_run):  # noqa: F811
    """Two seeds of four systems; the six multi-way pairs have one text, and a further test set lacks one pair."""
    directories = []
    for name, damages in DAMAGE.items():
        for seed, damage in enumerate(damages, start=1):
            experts, layers = SHAPES[name]
            config = config_of(experts, seed)
            config["model"] |= {"encoder_layers": layers, "decoder_layers": layers}
            config |= {"score": {"resamples": 100}}
            rates = {"moe": damage, "bilingual": 0.5}
            run = make_run(TAIL + MULTI_WAY, rates, 25, folder=f"runs/{name}_s{seed}", config=config)
            for system in rates:
                for pair in MULTI_WAY[1:]:
                    text = run / "translations" / system / f"{MULTI_WAY[0]}.jsonl"
                    shutil.copy(text, text.with_stem(pair))
            write_scores(run, metrics=("bleu", "chrf++"), n_resamples=100)
            further = run / "test_sets" / "news"
            shutil.copytree(run / "translations", further / "translations")
            record = json.loads((run / "run.json").read_text())
            record["pairs"] = [pair for pair in record["pairs"] if pair != "pl-en"]
            (further / "run.json").write_text(json.dumps(record))
            write_scores(further, metrics=("bleu",), n_resamples=100)
            directories.append(run)
    return directories


def mean_of(run, metric, pairs, model="moe"):
    scores = {(row.pair, row.metric, row.system): row.score for row in load_scores(run / "scores.csv")}
    return fmean(scores[pair, metric, model] for pair in pairs)


def test_a_contrast_is_the_sum_of_the_means_over_seeds_and_pairs(runs):
    rows = contrasts.compare(runs, ["moe_8e - dense", INTERACTION, "dense - bilingual"])
    by_key = {(row["contrast"], row["metric"], row["resource"]): row for row in rows}
    thirds = ("high", "medium", "low", "all")
    assert {resource for _, _, resource in by_key} == {*thirds, *(f"multi-way, {name}" for name in thirds)}
    assert len(rows) == 3 * 2 * 8
    run_of = {run.name: run for run in runs}
    for resource, pairs in (("all", TAIL + MULTI_WAY), ("multi-way, all", MULTI_WAY)):
        for metric in ("bleu", "chrf++"):
            mean = {
                (name, seed): mean_of(run_of[f"{name}_s{seed}"], metric, pairs) for name in DAMAGE for seed in (1, 2)
            }
            by_seed = [mean["moe_8e", seed] - mean["dense", seed] for seed in (1, 2)]
            row = by_key["moe_8e - dense", metric, resource]
            assert (row["num_pairs"], row["num_seeds"]) == (len(pairs), 2)
            assert row["delta"] == pytest.approx(fmean(by_seed), abs=1e-3)
            assert (row["seed_low"], row["seed_high"]) == pytest.approx((min(by_seed), max(by_seed)))
            assert row["ci_low"] < row["delta"] < row["ci_high"]
            signs = {"deep_moe": 1, "deep": -1, "moe_8e": -1, "dense": 1}
            expected = sum(sign * mean[name, seed] for name, sign in signs.items() for seed in (1, 2)) / 2
            assert by_key[INTERACTION, metric, resource]["delta"] == pytest.approx(expected, abs=1e-3)
            base = fmean(mean_of(run_of[f"dense_s{seed}"], metric, pairs, "bilingual") for seed in (1, 2))
            gain = fmean(mean["dense", seed] for seed in (1, 2)) - base
            assert by_key["dense - bilingual", metric, resource]["delta"] == pytest.approx(gain, abs=1e-3)


def test_a_contrast_takes_the_seeds_that_all_of_its_systems_have(runs):
    without = [run for run in runs if run.name not in ("deep_s1", "deep_moe_s2")]
    rows = contrasts.compare(without, ["moe_8e - dense", "deep - dense"])
    of_all = {row["contrast"]: row for row in rows if (row["metric"], row["resource"]) == ("bleu", "all")}
    assert {contrast: row["num_seeds"] for contrast, row in of_all.items()} == {"moe_8e - dense": 2, "deep - dense": 1}
    run_of = {run.name: run for run in runs}
    deep, dense = (mean_of(run_of[name], "bleu", TAIL + MULTI_WAY) for name in ("deep_s2", "dense_s2"))
    row = of_all["deep - dense"]
    assert [row[name] for name in ("delta", "seed_low", "seed_high")] == pytest.approx([deep - dense] * 3, abs=1e-3)
    (turned, *_) = contrasts.compare(without, ["dense - deep"])
    (same, *_) = (row for row in rows if row["contrast"] == "deep - dense")
    assert (turned["num_seeds"], turned["delta"]) == (1, pytest.approx(-same["delta"]))
    assert contrasts.compare(runs, ["moe_8e - dense"]) == [row for row in rows if row["contrast"] == "moe_8e - dense"]
    with pytest.raises(ValueError, match=r"deep_moe and deep have no seed in common; train them with the same"):
        contrasts.compare(without, ["deep_moe - deep"])


def test_a_further_test_set_keeps_the_thirds_of_the_training_text(runs):
    news = contrasts.compare(runs, ["moe_8e - dense"], "news")
    assert {row["resource"]: row["num_pairs"] for row in news} == {"high": 3, "medium": 2, "low": 1, "all": 6}
    assert {row["metric"] for row in news} == {"bleu"}
    with pytest.raises(ValueError, match=r"has no scores of ntrex; add it to score\.test_sets"):
        contrasts.compare(runs, ["moe_8e - dense"], "ntrex")


def test_a_pair_without_a_bilingual_model_is_in_no_contrast_with_these(runs):
    alone = compare_dense(runs)
    for run in runs:
        (run / "translations" / "bilingual" / "fr-en.jsonl").unlink()
        record = json.loads((run / "run.json").read_text())
        record["translated"] = {"bilingual": [pair for pair in record["pairs"] if pair != "fr-en"]}
        (run / "run.json").write_text(json.dumps(record))
        write_scores(run, metrics=("bleu", "chrf++"), n_resamples=100)
    rows = compare_dense(runs)
    assert {resource: row["num_pairs"] for resource, row in rows["moe_8e - dense"].items()} == {
        resource: row["num_pairs"] for resource, row in alone["moe_8e - dense"].items()
    }
    there = [pair for pair in TAIL + MULTI_WAY if pair != "fr-en"]
    row = rows["dense - bilingual"]["all"]
    expected = fmean(mean_of(run, "bleu", there) - mean_of(run, "bleu", there, "bilingual") for run in runs[:2])
    assert (row["num_pairs"], row["delta"]) == (6, pytest.approx(expected, abs=1e-3))
    thirds = [rows["dense - bilingual"][name]["num_pairs"] for name in ("high", "medium", "low")]
    before = [alone["dense - bilingual"][name]["num_pairs"] for name in ("high", "medium", "low")]
    assert (sum(thirds), sum(before)) == (6, 7)


def compare_dense(runs):
    rows = contrasts.compare(runs[:4], ["moe_8e - dense", "dense - bilingual"])
    return {
        contrast: {row["resource"]: row for row in rows if (row["contrast"], row["metric"]) == (contrast, "bleu")}
        for contrast in ("moe_8e - dense", "dense - bilingual")
    }


def test_the_command_prints_and_writes_the_primary_contrasts_that_there_are(runs, tmp_path, monkeypatch, capsys):
    words = ["contrasts", *map(str, runs), "--out", str(tmp_path / "contrasts.csv")]
    monkeypatch.setattr("sys.argv", ["experiment", *words])
    assert command.main() == 0
    with (tmp_path / "contrasts.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert {row["contrast"] for row in rows} == {"moe_8e - dense", "dense - bilingual", "moe_8e - bilingual"}
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1


@pytest.mark.parametrize("text", ["dense", "moe_8e dense", "moe_8e - ", "moe_8e * dense", "bilingual - bilingual"])
def test_another_form_is_no_contrast(text):
    with pytest.raises(ValueError, match="is no contrast; write systems with spaces"):
        contrasts.read_contrast(text)


def test_unknown_systems_are_errors(runs):
    with pytest.raises(
        ValueError, match="there is no system 'moe_9e'; choose among dense, moe_8e, deep, deep_moe, bil"
    ):
        contrasts.compare(runs, ["moe_9e - dense"])
    with pytest.raises(ValueError, match="no primary contrast has its systems among deep; name one by --of"):
        contrasts.compare([run for run in runs if run.name.startswith("deep_s")][:1])
