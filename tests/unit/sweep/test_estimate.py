"""Time left, by hand: points of 1000 FLOPs at round paces."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.dag.status import Batch, RunStatus, StageStatus
from pipeline.sweep.estimate import Point, Standing, after_training, left, pace, total

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)


def stage(title="train moe", state="running", *, seconds, fraction=None, resumed_at=0.0, at=0):
    return StageStatus(
        title=title,
        state=state,
        started=BEGAN + timedelta(seconds=at),
        seconds=seconds,
        fraction=1.0 if state == "done" else fraction,
        resumed_at=resumed_at,
        step=None,
        loss=None,
        tokens_per_second=None,
    )


def standing(name, state, *stages, flops=1000.0, directory=Path("none"), **more):
    status = RunStatus(
        state=state,
        pid=1,
        host="h",
        started=BEGAN,
        updated=BEGAN,
        stages=stages,
        batch=more.pop("batch", None),
        error="",
    )
    return Standing(point=Point(id=name, directory=directory, flops=flops), status=status, **more)


def waiting(name, *, flops=1000.0):
    return Standing(point=Point(id=name, directory=Path("none"), flops=flops), status=None)


DONE = standing(
    "a",
    "done",
    stage("clean de-en", "done", seconds=500, at=-1000),
    stage("train moe", "done", seconds=100),
    stage("translate moe", "done", seconds=20, at=100),
    stage("train bilingual de-en", "done", seconds=300, at=120),
    stage("score a", "done", seconds=10, at=420),
)


BILINGUAL = stage("train bilingual tr-en", seconds=50, at=90)


def batch(num_done, *, total):
    return Batch(what="bilingual models", num_done=num_done, total=total, seconds_left=100 * (total - num_done))


@pytest.mark.parametrize(
    ("fraction", "resumed_at", "seconds"), [(0.25, 0.0, 180), (0.5, 0.25, 120), (0.25, 0.25, None), (None, 0.0, None)]
)
def test_a_running_stage_goes_on_at_its_own_rate(fraction, resumed_at, seconds):
    assert stage(seconds=60, fraction=fraction, resumed_at=resumed_at).seconds_left == seconds


def test_a_run_alone_has_the_estimate_of_its_own_status():
    training = stage(seconds=60, fraction=0.75)
    point = standing("b", "running", training, stage("encode de-en", "done", seconds=1, at=-2), flops=0.0)
    run = replace(point.status, steps=("encode", "train", "baselines"), expected={"baselines": 2.0})
    assert left(replace(point, status=run), None, 0.0) == 20 + 2 * 80
    assert left(point, None, 0.0) == 20, "a version before 0.3 wrote it"


def test_the_pace_is_that_of_all_trainings_over_the_flops_they_did():
    half = standing("b", "running", stage(seconds=200, fraction=0.75, resumed_at=0.25), flops=4000)
    assert pace([DONE]) == 0.1
    assert pace([DONE, half]) == 300 / 3000  # 1000 and half of 4000
    assert pace([waiting("c"), standing("d", "lost", stage(state="lost", seconds=9e9, fraction=0.5))]) is None


def test_a_resumed_training_gives_no_pace_before_its_steps_outweigh_its_loading():
    near_its_end = standing("b", "stopped", stage(state="done", seconds=60, fraction=1.0, resumed_at=0.97), flops=4000)
    assert pace([DONE, near_its_end]) == 0.1
    assert pace([near_its_end]) is None


def test_a_point_that_reused_its_training_gives_its_pace_by_its_records(tmp_path):
    record = {"event": "train", "step": 1, "target_tokens": 1, "cross_entropy": 1.0, "seconds": 50.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    assert pace([standing("a", "done", directory=tmp_path)]) == 0.05


def test_what_comes_after_training_is_what_finished_points_took_without_what_points_share():
    other = standing("b", "done", stage(state="done", seconds=1), stage("score b", "done", seconds=40, at=1))
    assert after_training([waiting("c")]) == 0
    assert after_training([DONE, waiting("c")]) == 30
    assert after_training([DONE, other]) == 35


@pytest.mark.parametrize(
    ("point", "seconds"),
    [
        (DONE, 0),
        (waiting("b", flops=2000), 230),  # 2000 FLOPs of 0.1 s, and 30 s after
        (waiting("b", flops=0), None),
        (standing("b", "running", stage("clean de-en", seconds=5)), 130),
        (standing("b", "running", stage(seconds=60, fraction=0.75)), 50),  # 20 s at its own rate
        (standing("b", "stopped", stage(state="stopped", seconds=60, fraction=0.75)), 55),  # a quarter of 100 s
        (standing("b", "failed", stage(state="failed", seconds=60, fraction=0.75)), 55),
        (standing("b", "failed", stage(state="failed", seconds=60, fraction=0.75), given_up=True), 0),
        (standing("b", "running", stage(state="done", seconds=90), stage("translate moe", seconds=12, at=90)), 18),
        (standing("b", "running", stage("translate moe", seconds=12)), 18),  # its training was there
        (standing("b", "running", stage("translate moe", seconds=99)), 0),
        (standing("b", "running", stage(state="done", seconds=90), BILINGUAL), None),  # none of them is done yet
        (standing("b", "running", stage(state="done", seconds=90), BILINGUAL, batch=batch(3, total=7)), 430),
        (standing("b", "running", stage(state="done", seconds=90), BILINGUAL, batch=batch(7, total=7)), None),
        (standing("baselines", "running", BILINGUAL, batch=batch(3, total=7), flops=0), 400),
        (standing("data", "running", stage("clean de-en", seconds=5), flops=0), None),
    ],
)
def test_what_is_left_of_a_point(point, seconds):
    assert left(point, 0.1, 30) == (None if seconds is None else pytest.approx(seconds))


def test_the_total_is_unknown_until_something_has_been_measured():
    assert total([waiting("a"), waiting("b")], 1) is None
    assert total([DONE, waiting("b"), waiting("c")], 1) == pytest.approx(260)
    assert total([DONE, waiting("b"), waiting("c")], 2) == pytest.approx(130)
    running = standing("b", "running", stage(seconds=100, fraction=0.5))
    # 200 s for 1500 FLOPs: 100 + 30 s of b, then 1000 FLOPs and 30 s of c
    assert total([DONE, running, waiting("c")], 1) == pytest.approx(130 + 1000 * 200 / 1500 + 30)


@pytest.mark.parametrize("title", ["translate moe", "routing moe", "score b", "report b"])
def test_a_training_that_an_earlier_command_finished_is_over(title):
    second = standing("b", "running", stage(title, seconds=10))
    assert left(second, pace=0.1, after=30.0) == 20.0


def test_a_baseline_that_is_translated_says_nothing_of_the_main_training():
    second = standing("b", "running", stage("translate bilingual de-en", "done", seconds=10))
    assert left(second, pace=0.1, after=30.0) == 130.0
