"""The fraction of its work that a running stage has done, which `read_status` takes from the files that it writes."""

import json
from pathlib import Path

import pytest

from pipeline.dag.stage import Stage
from pipeline.dag.status import read_status, training_seconds
from pipeline.dag.status_file import StatusFile, recorded
from pipeline.dag.store import Store
from pipeline.stopping import Stopped


def stage(run, *, name, label=""):
    return Stage(name=name, version=1, config={}, run=run, label=label, resumable=True)


def record_training(out: Path, *, tokens, budget=1000, steps=0, more=""):
    """Write the records of a training that has seen this number of tokens."""
    (out / "log").mkdir(exist_ok=True)
    (out / "log" / "job.json").write_text(json.dumps({"train": {"max_steps": steps, "max_tokens": budget}}))
    lines = [
        {
            "event": "train",
            "step": count // 50,
            "target_tokens": count,
            "cross_entropy": 9 - count / 100,
            "seconds": 2.0,
        }
        for count in tokens
    ]
    lines.append({"event": "validation", "step": 8, "target_tokens": 400, "cross_entropy": 1.0, "seconds": 2.0})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (out / "log" / "metrics.jsonl").write_text(text + more)


def test_how_far_a_training_is_comes_from_its_records(tmp_path):
    status_read = []

    def train(out: Path) -> None:
        status_read.append(read_status(tmp_path).stages[0])
        record_training(out, tokens=[100, 400], more='{"event": "train", "step": 9, "target_tok')
        status_read.append(read_status(tmp_path).stages[0])

    Store(tmp_path, StatusFile(tmp_path)).get(stage(train, name="train", label="moe"))
    before, then = status_read
    assert (before.fraction, before.step, before.loss, before.tokens_per_second) == (None, None, None, None)
    assert (then.fraction, then.step, then.loss, then.tokens_per_second) == (0.4, 8, 5.0, 200.0)
    after = read_status(tmp_path).stages[0]
    assert (after.state, after.fraction) == ("done", 1.0)


def test_the_budget_is_in_steps_or_in_tokens_whichever_ends_first(tmp_path):
    fractions = []

    def train(out: Path) -> None:
        record_training(out, tokens=[400], steps=10)
        fractions.append(read_status(tmp_path).stages[0].fraction)
        record_training(out, tokens=[400], budget=0, steps=16)
        fractions.append(read_status(tmp_path).stages[0].fraction)

    Store(tmp_path, StatusFile(tmp_path)).get(stage(train, name="train"))
    assert fractions == [0.8, 0.5]


def test_a_resumed_training_says_where_it_began(tmp_path):
    def stopped(out: Path) -> None:
        record_training(out, tokens=[300])
        raise Stopped("train moe")

    status_read = []

    def train(out: Path) -> None:
        record_training(out, tokens=[300, 500])
        status_read.append(read_status(tmp_path).stages[0])

    with pytest.raises(Stopped), recorded(tmp_path) as status:
        Store(tmp_path, status).get(stage(stopped, name="train"))
    earlier = read_status(tmp_path).stages[0]
    assert (earlier.state, earlier.fraction, earlier.resumed_at) == ("stopped", 0.3, 0.0)
    with recorded(tmp_path) as status:
        Store(tmp_path, status).get(stage(train, name="train"))
    assert (status_read[0].fraction, status_read[0].resumed_at) == (0.5, 0.3)


def test_how_far_a_translation_is_comes_from_what_it_has_written(tmp_path):
    fractions = []

    def translate(out: Path) -> None:
        for directory in ("log", "work/de-en", "work/tr-en"):
            (out / directory).mkdir(parents=True)
        job = {"rounds": [[{"start": 0, "stop": 6}, {"start": 0, "stop": 2}]]}
        (out / "log" / "job.json").write_text(json.dumps(job))
        (out / "work" / "de-en" / "0-6.rank-0.jsonl").write_text("{}\n{}\n")
        (out / "work" / "tr-en" / "0-2.rank-0.jsonl").write_text("{}\n")
        (out / "work" / "de-en" / "0-6.rank-1.jsonl").write_text("{}\n{")
        fractions.append(read_status(tmp_path).stages[0].fraction)

    Store(tmp_path, StatusFile(tmp_path)).get(stage(translate, name="translate", label="moe"))
    assert fractions == [0.5]


def test_what_a_finished_training_took_is_among_its_results(tmp_path):
    assert training_seconds(tmp_path) is None
    record_training(tmp_path, tokens=[100, 400])
    (tmp_path / "log" / "metrics.jsonl").rename(tmp_path / "metrics.jsonl")
    assert training_seconds(tmp_path) == 2.0
