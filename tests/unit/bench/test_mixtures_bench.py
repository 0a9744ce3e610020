"""Seeds of a sweep become one table, with differences from a reference that count test sentences and seeds."""

import csv
import json
import shutil
import statistics

import pytest

from bench.experiment.archive import keep_run
from bench.moe import mixtures
from bench.output import MEAN
from bench.published import cells
from bench.published.quality import mixtures as published
from eval.records.scores import load_scores
from eval.score.run import write_scores
from tests.unit.eval.conftest import config_of, make_run  # noqa: F401 - a fixture

PAIRS = ("de-en", "fr-en")
POINTS = {"dense": (0, "model.moe.num_experts=0"), "top2": (4, "gate=top2"), "task": (8, "gate=task")}
# share of the words that each seed loses
DAMAGE = {"dense": (0.5, 0.52, 0.5), "top2": (0.2, 0.21, 0.2), "task": (0.22, 0.2, 0.21)}


CONFIG = {"score": {"metrics": ["bleu"], "resamples": 1000}}


def write_sweep(make_run, seed, points=POINTS):  # noqa: F811
    record = {"commit": "0123456789ab", "points": [{"id": "data", "role": "shared", "overrides": []}]}
    for point, (experts, setting) in points.items():
        run = make_run(
            PAIRS,
            {"moe": DAMAGE[point][seed - 1]},
            150,
            folder=f"sweep_{seed}/{point}",
            config=CONFIG | config_of(experts, seed),
            environment={"cpu": "Zen 4"},
        )
        write_scores(run, metrics=("bleu",))
        record["points"].append({"id": point, "role": "point", "overrides": [setting, f"train.seed={seed}"]})
    (run.parent / "sweep.json").write_text(json.dumps(record))
    return run.parent


@pytest.fixture
def sweeps(make_run):  # noqa: F811
    return [write_sweep(make_run, seed) for seed in (1, 2)]


def bleu(run):
    return statistics.fmean(row.score for row in load_scores(run / "scores.csv") if row.metric == "bleu")


def test_the_difference_is_that_of_the_means_over_seeds(sweeps):
    rows = mixtures.compare(sweeps, "top2")
    assert [(row["point"], row["seed"]) for row in rows] == [(p, seed) for p in POINTS for seed in (MEAN, 1, 2)]
    means = {row["point"]: row for row in rows if row["seed"] == MEAN}
    scores = {point: statistics.fmean(bleu(sweep / point) for sweep in sweeps) for point in POINTS}
    for point, row in means.items():
        assert (row["settings"], row["device"]) == (POINTS[point][1], "Zen 4")
        assert row["bleu"] == pytest.approx(scores[point], abs=1e-3)
        assert row["bleu_delta"] == pytest.approx(scores[point] - scores["top2"], abs=2e-3)
        assert row["tokens_per_second"] == pytest.approx(2_000_000 / 520)
        assert row["validation"] == pytest.approx(3 + 5 / 40 + 0.2)
    assert means["dense"]["ci_low"] < means["dense"]["bleu_delta"] < means["dense"]["ci_high"] < 0
    assert means["task"]["ci_low"] < 0 < means["task"]["ci_high"]
    assert {row["run_commit"] for row in rows if row["seed"] != MEAN} == {"0123456789"}


def test_one_seed_beside_other_work_does_not_change_the_speed(make_run):  # noqa: F811
    sweeps = [write_sweep(make_run, seed) for seed in (1, 2, 3)]
    path = sweeps[1] / "task" / "run.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["systems"]["moe"][0]["train_seconds"] *= 10
    path.write_text(json.dumps(record), encoding="utf-8")
    rows = {(row["point"], row["seed"]): row["tokens_per_second"] for row in mixtures.compare(sweeps, "top2")}
    assert rows["task", 2] == pytest.approx(rows["task", 1] / 10)
    assert rows["task", MEAN] == rows["task", 1] == rows["task", 3] == rows["top2", MEAN]


def test_the_command_writes_the_rows_of_the_published_table(sweeps, tmp_path, monkeypatch, capsys):
    out = tmp_path / "mixtures-cpu.csv"
    monkeypatch.setattr("sys.argv", ["mixtures", *map(str, sweeps), "--reference", "top2", "--out", str(out)])
    assert mixtures.main() == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[:4]] == ["point", *POINTS]
    with out.open() as file:
        assert [row["point"] for row in csv.DictReader(file)] == [point for point in POINTS for _ in range(3)]
    monkeypatch.setattr(cells, "RESULTS", tmp_path)
    _, _, dense, top2, task = published().splitlines()
    assert dense.startswith("| `model.moe.num_experts=0` | 3.325 [3.325, 3.325] |")
    assert dense.endswith("| mixtures-cpu:2, 3, 4 |")
    assert [line.split(" | ")[3].strip() for line in (dense, top2, task)][1] == ""
    assert "[" in task.split(" | ")[3]


def test_what_a_gate_did_is_a_mean_over_trainings(sweeps):
    for sweep, (experts, dropped) in zip(sweeps, ((1.4, 0.02), (1.6, 0.06)), strict=True):
        path = sweep / "top2" / "metrics.jsonl"
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        gate = {"experts_per_token": experts, "drop_rate": dropped}
        records = [record | gate if record["event"] == "train" else record for record in records]
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    rows = {(row["point"], row["seed"]): row for row in mixtures.compare(sweeps, "top2")}
    for seed, gate in ((MEAN, (1.5, 0.04)), (1, (1.4, 0.02)), (2, (1.6, 0.06))):
        row = rows["top2", seed]
        assert (row["experts_per_token"], row["drop_rate"]) == pytest.approx(gate)
    assert rows["dense", MEAN]["experts_per_token"] is None


def test_the_interval_of_one_seed_counts_sentences_alone(sweeps):
    rows = mixtures.compare(sweeps[:1], "top2")
    assert [(row["point"], row["seed"]) for row in rows] == [(point, seed) for point in POINTS for seed in (MEAN, 1)]
    for point, row in ((row["point"], row) for row in rows[::2]):
        assert row["bleu_delta"] == pytest.approx(bleu(sweeps[0] / point) - bleu(sweeps[0] / "top2"))
        assert point == "top2" or row["ci_low"] <= row["bleu_delta"] <= row["ci_high"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda sweeps: (sweeps, "top1"), "choose one of dense, top2, task"),
        (lambda sweeps: ([sweeps[0], sweeps[0]], "top2"), "differ in the seed alone"),
        (lambda sweeps: ([sweeps[0] / "dense", sweeps[1]], "top2"), r"no sweep\.json"),
    ],
)
def test_what_cannot_be_compared_is_refused(sweeps, arguments, words):
    with pytest.raises(ValueError, match=words):
        mixtures.compare(*arguments(sweeps))


def test_archives_of_a_sweep_are_as_good_as_the_sweep(sweeps, tmp_path, monkeypatch):
    """The command scores restored runs itself."""
    archives = [tmp_path / f"archives_{place}" for place in range(2)]
    for sweep, directory in zip(sweeps, archives, strict=True):
        for point in POINTS:
            keep_run(sweep / point, directory)
        shutil.copy(sweep / "sweep.json", directory)
    tables = []
    for places in (sweeps, archives):
        out = tmp_path / f"{places[0].name}.csv"
        monkeypatch.setattr("sys.argv", ["mixtures", *map(str, places), "--reference", "top2", "--out", str(out)])
        assert mixtures.main() == 0
        tables.append(out.read_text())
    assert tables[0] == tables[1]


def test_an_unfinished_point_is_named(sweeps, monkeypatch, capsys):
    (sweeps[1] / "task" / "run.json").unlink()
    monkeypatch.setattr("sys.argv", ["mixtures", *map(str, sweeps), "--reference", "top2"])
    assert mixtures.main() == 2
    assert "sweep_2/task" in capsys.readouterr().err


def test_a_point_that_no_sweep_has_finished_is_left_out_and_named(sweeps, tmp_path, monkeypatch, capsys):
    complete = mixtures.compare(sweeps, "top2")
    for sweep in sweeps:
        (sweep / "task" / "run.json").unlink()
    assert mixtures.compare(sweeps, "top2") == [row for row in complete if row["point"] != "task"]
    out = tmp_path / "left_out.csv"
    monkeypatch.setattr("sys.argv", ["mixtures", *map(str, sweeps), "--reference", "top2", "--out", str(out)])
    assert mixtures.main() == 0
    assert "left out, because no sweep has finished them: task\n" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"task is no point of .*; choose one of dense, top2$"):
        mixtures.compare(sweeps, "task")
