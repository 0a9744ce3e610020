"""The sentences of docs/moe.md on the mixtures agree with their table, and the archives have the runs of the table."""

import re

import pytest

from bench.experiment.archive import restore
from bench.output import MEAN, RESULTS
from bench.published.cells import read
from eval.records.run_record import load_losses, load_run
from pipeline.config import ROOT
from tests.gates import GATES, moe_of

ROWS = read(RESULTS / "mixtures-amd-epyc.csv")
MEANS = {
    row["settings"]: {k: float(v) for k, v in row.items() if v and k.startswith(("bleu", "ci", "load", "tok"))}
    for row in ROWS
    if row["seed"] == MEAN
}
WORDS = re.sub(r"\s+", " ", (ROOT / "docs" / "moe.md").read_text(encoding="utf-8"))
TASK = "gate=task model.moe.gate.k=2"
NOISY = [settings for settings in MEANS if "noisy_topk" in settings]
FREE = ["gate=dropless", "gate=sigmoid", "gate=node_limited", TASK, *NOISY]


def test_the_gates_with_a_capacity_are_those_of_the_page():
    words, by_setting = re.search(r"With ([^.]*) an expert takes .*?by default; ([^.]*) get one by", WORDS).groups()
    limited = [gate for gate in GATES if moe_of(gate).gate_of(decoder=False).training_factor]
    assert sorted(re.findall(r"`(\w+)`", words)) == limited
    free = [gate for gate in GATES if gate not in limited]
    may = [gate for gate in free if hasattr(moe_of(gate).gate_of(decoder=False), "capacity_factor")]
    assert sorted(re.findall(r"`(\w+)`", by_setting)) == may


def test_the_models_that_differ_from_top2_are_named():
    assert {settings for settings, row in MEANS.items() if row.get("ci_high", 0) < 0} == {TASK}
    assert f"(`gate=task`) is {-MEANS[TASK]['bleu_delta']:.1f} BLEU behind `top2`" in WORDS
    assert all(row.get("ci_low", 0) <= 0 for row in MEANS.values())
    small, choice, *_ = sorted(MEANS, key=lambda settings: -MEANS[settings].get("bleu_delta", 0))
    assert (small, choice) == ("model=fine_grained model.moe.gate.capacity_factor=1.25", "gate=expert_choice")
    gains = [f"{MEANS[settings]['bleu_delta']:+.2f}" for settings in (small, choice)]
    assert f"Many small experts ({gains[0]}) and `expert_choice` ({gains[1]}) come closest" in WORDS
    assert all(MEANS[settings]["ci_low"] > -0.1 for settings in (small, choice))


def test_the_scores_of_the_seeds_of_top2_are_those_of_the_table():
    first, second, third = (
        f"{float(row['bleu']):.2f}" for row in ROWS if row["settings"] == "gate=top2" and row["seed"] != MEAN
    )
    assert f"the means of seeds 1 to 3 of `top2` are {first}, {second} and {third} BLEU" in WORDS


def test_loads_and_speeds_are_those_of_the_table():
    load = {settings: MEANS[settings]["load_max"] for settings in [*NOISY, "gate=sigmoid"]}
    free = load["gate=noisy_topk model.moe.gate.importance_weight=0 model.moe.gate.load_weight=0"]
    balanced = [load[settings] for settings in NOISY if load[settings] != free]
    assert (
        f"has {free:.1f} times the mean load**, with one or both {min(balanced):.1f} to {max(balanced):.1f} times"
        in WORDS
    )
    assert f"has {load['gate=sigmoid']:.1f} times the mean load, the most of all models that balance" in WORDS
    other_loads = [
        row["load_max"] for settings, row in MEANS.items() if "load_max" in row and settings != "gate=sigmoid"
    ]
    assert [value for value in other_loads if value > load["gate=sigmoid"]] == [free]
    rates = [MEANS[settings]["tokens_per_second"] / MEANS["gate=top2"]["tokens_per_second"] for settings in FREE]
    assert f"train at {100 * min(rates):.0f} to {100 * max(rates):.0f} % of the tokens a second of `top2`" in WORDS


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_the_archives_have_the_runs_of_the_table(seed, tmp_path):
    runs = restore(ROOT / "recipes" / "mixtures" / "results" / f"s{seed}", tmp_path / "runs")
    losses = {row["point"]: float(row["validation"]) for row in ROWS if row["seed"] == seed}
    assert {run.name for run in runs} == {*losses}
    for run in runs:
        lowest = min(point.cross_entropy for point in load_losses(run, "validation"))
        assert lowest == pytest.approx(losses[run.name], rel=1e-4)
        steps, average = load_losses(run, "train")[-1].step, load_run(run).config["train"]["ema"]
        assert f"1,220 steps (`train.ema={average}`)" in WORDS
        assert steps in (1210, 1220)  # the loss of every tenth step is recorded
        assert f"the first, random weights still count for {100 * average**steps:.0f} %" in WORDS
