"""Tokens to a validation loss, by system."""

import csv

import pytest

from bench.experiment import __main__ as command
from bench.experiment.tokens import measure, tokens_to
from eval.records.run_record import LossPoint
from eval.score.run import write_scores
from tests.unit.eval.conftest import config_of, make_run, write_jsonl  # noqa: F401 - a fixture

CURVES = {"dense_s1": (5.0, 4.0, 3.0), "dense_s2": (5.0, 3.5, 3.0), "moe_8e_s1": (5.0, 3.0, 2.0)}


def curve(*losses):
    """Validations after 1, 10 and 100 tokens."""
    return [
        LossPoint(
            step=n, target_tokens=10**n, cross_entropy=loss, pairs={}, seconds=None, metric="", score=None, scores={}
        )
        for n, loss in enumerate(losses)
    ]


@pytest.fixture
def runs(make_run):  # noqa: F811
    directories = []
    for name, losses in CURVES.items():
        system, _, seed = name.rpartition("_s")
        run = make_run(["de-en"], folder=f"runs/{name}", config=config_of(8 if system == "moe_8e" else 0, int(seed)))
        events = [
            {"event": "validation", "step": n, "target_tokens": 10**n, "cross_entropy": loss, "pairs": {}}
            for n, loss in enumerate(losses, start=3)
        ]
        write_jsonl(run / "metrics.jsonl", events)
        write_scores(run, n_resamples=20)
        directories.append(run)
    return directories


def test_the_loss_falls_with_the_logarithm_of_the_tokens_between_validations():
    assert tokens_to(curve(5.0, 4.0, 3.0), 4.0) == pytest.approx(10)
    assert tokens_to(curve(5.0, 4.0, 3.0), 3.5) == pytest.approx(10**1.5)
    assert tokens_to(curve(5.0, 3.0, 4.5, 3.0), 4.0) == pytest.approx(10**0.5)  # the first time
    assert tokens_to(curve(5.0, 4.0), 3.9) is None
    assert tokens_to(curve(5.0, 4.0), 6.0) is None


def test_a_system_has_the_mean_of_its_seeds_and_none_where_one_falls_short(runs):
    rows = {(row["system"], row["loss"]): row for row in measure(runs, [4.0, 2.5])}
    dense, sparse = rows["dense", 4.0], rows["moe_8e", 4.0]
    tokens = [10**4, 10 ** (3 + 1 / 1.5)]
    assert (dense["num_seeds"], dense["share_of_first"]) == (2, 1)
    assert (dense["fewest"], dense["most"]) == (pytest.approx(tokens[1]), pytest.approx(tokens[0]))
    assert dense["tokens"] == pytest.approx(sum(tokens) / 2)
    assert sparse["tokens"] == pytest.approx(10**3.5)
    assert sparse["share_of_first"] == pytest.approx(10**3.5 / dense["tokens"])
    assert [rows["dense", 2.5][name] for name in ("tokens", "fewest", "most", "share_of_first")] == [None] * 4
    assert (rows["moe_8e", 2.5]["tokens"], rows["moe_8e", 2.5]["share_of_first"]) == (pytest.approx(10**4.5), None)


def test_the_command_prints_and_writes_the_rows(runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "tokens.csv"
    monkeypatch.setattr("sys.argv", ["experiment", "tokens", *map(str, runs), "--loss", "4", "--out", str(out)])
    assert command.main() == 0
    header, dense, sparse = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["loss", "system", "seeds", "tokens"]
    assert dense.split() == ["4.00", "dense", "2", *("7.32", "k", "4.64", "k", "10.0", "k"), "1.000"]
    assert sparse.split()[-1] == "0.432"
    with out.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["system"], float(row["loss"])) for row in rows] == [("dense", 4.0), ("moe_8e", 4.0)]
    assert rows[1]["num_seeds"] == "1"
