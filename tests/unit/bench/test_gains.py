"""The gain of each pair over its bilingual model."""

import csv
import json

import pytest

from bench.experiment import __main__ as command
from bench.experiment.gains import COLUMNS, measure
from eval.records.ending import MARK
from eval.records.scores import load_scores
from eval.score.run import write_scores
from tests.unit.eval.conftest import config_of, make_run  # noqa: F401 - a fixture

PAIRS = ("de-en", "fr-en", "it-en")
DAMAGE = {"dense_s1": 0.30, "dense_s2": 0.20, "moe_8e_s1": 0.10}  # share of the words that a model loses


@pytest.fixture
def runs(make_run):  # noqa: F811
    """Two seeds of a dense model and one mixture. Italian has no bilingual model; the budget ended the German one."""
    directories = []
    for name, damage in DAMAGE.items():
        system, _, seed = name.rpartition("_s")
        config = config_of(8 if system == "moe_8e" else 0, int(seed))
        run = make_run(PAIRS, {"moe": damage, "bilingual": 0.4}, 40, folder=f"runs/{name}", config=config)
        record = json.loads((run / "run.json").read_text())
        ledgers = {ledger["pair"]: ledger for ledger in record["systems"]["bilingual"]}
        steps = {"steps": 100, "validate_every": 10, "patience": 5}
        ledgers["de-en"] |= {"stopped": "tokens", "best_step": 90, **steps}
        ledgers["fr-en"] |= {"stopped": "patience", "best_step": 50, **steps}
        record["systems"]["bilingual"] = [ledgers["de-en"], ledgers["fr-en"]]
        record["translated"] = {"bilingual": ["de-en", "fr-en"]}
        record["train_pairs"] |= {"de-en": 100, "fr-en": 200, "it-en": 300}
        (run / "run.json").write_text(json.dumps(record))
        (run / "translations" / "bilingual" / "it-en.jsonl").unlink()
        write_scores(run, metrics=("bleu", "chrf++"), n_resamples=100)
        directories.append(run)
    return directories


def bleu(run, pair, model):
    (score,) = (
        row.score
        for row in load_scores(run / "scores.csv")
        if (row.pair, row.metric, row.system) == (pair, "bleu", model)
    )
    return score


def test_a_pair_has_its_bilingual_model_and_the_gain_of_each_system(runs):
    rows = measure(runs)
    assert [(row["pair"], row["train_pairs"], row["system"], row["num_seeds"]) for row in rows] == [
        ("fr-en", 200, "dense", 2),
        ("fr-en", 200, "moe_8e", 1),
        ("de-en", 100, "dense", 2),
        ("de-en", 100, "moe_8e", 1),
    ]
    assert [row["improving"] for row in rows] == [0, 0, 1, 1]
    for row in rows:
        assert row.keys() == {*COLUMNS}
        of_system = [run for run in runs if run.name.startswith(f"{row['system']}_s")]
        expected = sum(bleu(run, row["pair"], "moe") for run in of_system) / len(of_system)
        assert row["score"] == pytest.approx(expected, abs=1e-3)
        assert row["bilingual"] == pytest.approx(bleu(runs[0], row["pair"], "bilingual"), abs=1e-3)
        assert row["gain"] == pytest.approx(row["score"] - row["bilingual"])
        assert row["ci_low"] < row["gain"] < row["ci_high"]
        assert row["num_sentences"] == 40


def test_runs_without_bilingual_models_are_refused(make_run):  # noqa: F811
    run = make_run(["de-en"], {"moe": 0.3}, folder="runs/alone_s1", config=config_of(0, 1))
    record = json.loads((run / "run.json").read_text())
    record["systems"].pop("bilingual", None)
    (run / "run.json").write_text(json.dumps(record))
    write_scores(run, n_resamples=20)
    with pytest.raises(ValueError, match="alone_s1 has no bilingual models to compare with"):
        measure([run])


def test_the_command_prints_and_writes_the_rows(runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "gains.csv"
    monkeypatch.setattr("sys.argv", ["experiment", "gains", *map(str, runs), "--out", str(out)])
    assert command.main() == 0
    header, first, *_, last = capsys.readouterr().out.splitlines()
    assert header.split()[:4] == ["pair", "rows", "sentences", "bilingual"]
    assert MARK not in first
    assert last.split()[3].endswith(MARK)
    with out.open() as stream:
        assert [row["pair"] for row in csv.DictReader(stream)] == ["fr-en", "fr-en", "de-en", "de-en"]
