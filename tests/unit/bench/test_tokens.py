"""Tokens to a training loss, by system."""

import csv

import numpy as np
import pytest

from bench.experiment import __main__ as command
from bench.experiment.curves import PARTS, training_curve
from bench.experiment.scaling import FIRST_PART
from bench.experiment.tokens import measure, tokens_to
from eval.score.run import write_scores
from tests.unit.eval.conftest import config_of, make_run, write_jsonl  # noqa: F401 - a fixture

BUDGET = 1_000_000
SCALES = {"dense_s1": 400.0, "dense_s2": 500.0, "moe_8e_s1": 300.0}
FLOOR, EXPONENT = 2.0, 0.5


@pytest.fixture
def runs(make_run):  # noqa: F811
    """Runs whose training losses are FLOOR + scale · tokens^-EXPONENT, with noise that is the same in all."""
    noise = np.random.default_rng(1).normal(0, 0.05, size=10 * PARTS)
    tokens = np.linspace(0, BUDGET, 10 * PARTS + 1)[1:]
    directories = []
    for name, scale in SCALES.items():
        system, _, seed = name.rpartition("_s")
        run = make_run(["de-en"], folder=f"runs/{name}", config=config_of(8 if system == "moe_8e" else 0, int(seed)))
        losses = FLOOR + scale * tokens**-EXPONENT + noise
        events = [
            {"event": "train", "step": step, "target_tokens": int(count), "cross_entropy": loss}
            for step, (count, loss) in enumerate(zip(tokens, losses, strict=True), start=1)
        ]
        events.append({"event": "validation", "step": len(tokens), "target_tokens": BUDGET, "cross_entropy": 9.0})
        write_jsonl(run / "metrics.jsonl", events)
        write_scores(run, n_resamples=20)
        directories.append(run)
    return directories


def tokens_of(scale, loss):
    return (scale / (loss - FLOOR)) ** (1 / EXPONENT)


def test_a_curve_has_the_means_of_equal_parts(runs):
    curve = training_curve(runs[0])
    assert len(curve) == PARTS
    assert curve[0].target_tokens == round(np.mean([BUDGET / (10 * PARTS) * n for n in range(1, 11)]))
    assert curve[-1].cross_entropy == pytest.approx(FLOOR + 400 * curve[-1].target_tokens ** -EXPONENT, abs=0.05)


def test_a_curve_needs_a_record_for_each_part(runs):
    events = [{"event": "train", "step": n, "target_tokens": n, "cross_entropy": 3.0} for n in range(1, PARTS)]
    write_jsonl(runs[0] / "metrics.jsonl", events)
    with pytest.raises(ValueError, match=f"{PARTS - 1} records of training are too few; a curve needs {PARTS}"):
        training_curve(runs[0])


def test_tokens_are_read_off_the_fit_in_what_was_trained_alone(runs):
    curve = training_curve(runs[0])
    assert tokens_to(curve, 2.6) == pytest.approx(tokens_of(400, 2.6), rel=0.03)
    assert tokens_to(curve, 2.39) is None  # after more tokens than it was trained on
    assert tokens_to(curve, FLOOR + 400 * (0.9 * FIRST_PART * BUDGET) ** -EXPONENT) is None
    flat = [point.__class__(**{**vars(point), "cross_entropy": 3.0}) for point in curve]
    assert tokens_to(flat, 3.0) is None


def test_a_system_has_the_mean_of_its_seeds_and_none_where_one_falls_short(runs):
    rows = {(row["system"], row["loss"]): row for row in measure(runs, [2.6, 2.45])}
    dense, sparse = rows["dense", 2.6], rows["moe_8e", 2.6]
    of_seeds = [tokens_of(scale, 2.6) for scale in (400, 500)]
    assert (dense["num_seeds"], dense["share_of_first"]) == (2, 1)
    assert [dense[name] for name in ("fewest", "most")] == [pytest.approx(tokens, rel=0.03) for tokens in of_seeds]
    assert dense["tokens"] == pytest.approx((dense["fewest"] + dense["most"]) / 2)
    assert sparse["share_of_first"] == pytest.approx(sparse["tokens"] / dense["fewest"])  # both of seed 1
    assert [rows["dense", 2.45][name] for name in ("tokens", "fewest", "most", "share_of_first")] == [None] * 4
    assert rows["moe_8e", 2.45]["tokens"] == pytest.approx(tokens_of(300, 2.45), rel=0.05)
    assert rows["moe_8e", 2.45]["share_of_first"] == pytest.approx(tokens_of(300, 1) / tokens_of(400, 1), abs=0.03)


def test_the_command_prints_and_writes_the_rows(runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "tokens.csv"
    monkeypatch.setattr("sys.argv", ["experiment", "tokens", *map(str, runs), "--loss", "2.6", "--out", str(out)])
    assert command.main() == 0
    header, dense, sparse = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["loss", "system", "seeds", "tokens"]
    assert dense.split()[:3] == ["2.60", "dense", "2"]
    assert dense.split()[-1] == "1.000"
    assert float(sparse.split()[-1]) == pytest.approx(tokens_of(300, 1) / tokens_of(400, 1), abs=0.03)
    with out.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["system"], float(row["loss"])) for row in rows] == [("dense", 2.6), ("moe_8e", 2.6)]
    assert rows[1]["num_seeds"] == "1"
