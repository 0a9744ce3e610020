"""The steps of a run and the time that it has left, by hand: round times, and stages in the order of a real run."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pipeline.config import ROOT, load_config
from pipeline.dag.status import Batch, RunStatus, StageStatus, now
from pipeline.dag.steps import BASELINE_STEPS, DATA_STEPS, begun_steps, run_line, run_seconds_left, train_steps

BEGAN = datetime(2026, 11, 22, 12, tzinfo=UTC)
STEPS = ("fetch", "clean", "vocab", "encode", "train", "translate", "routing", "baselines", "score", "report")


def stage(title, state, *, at, seconds=10, fraction=None, resumed_at=0.0, step=None):
    return StageStatus(
        title=title,
        state=state,
        started=BEGAN + timedelta(seconds=at),
        seconds=seconds,
        fraction=1.0 if state == "done" else fraction,
        resumed_at=resumed_at,
        step=step,
        loss=3.2 if step else None,
        tokens_per_second=None,
    )


def status(*stages, steps=STEPS, batch=None, **expected):
    return RunStatus(
        state="running",
        pid=1,
        host="h",
        started=BEGAN,
        updated=BEGAN,
        stages=stages,
        batch=batch,
        error="",
        steps=steps,
        expected=expected,
    )


def steps_at(status, seconds):
    return begun_steps(status, BEGAN + timedelta(seconds=seconds))


PREPARED = (
    stage("fetch corpus train", "done", at=0),
    stage("held_out", "done", at=3),
    stage("clean tr-en", "done", at=5),
    stage("clean de-en", "done", at=4),
    stage("vocab moe", "done", at=9),
    stage("encode de-en", "done", at=12),
    stage("vocab bilingual de-en", "done", at=13),
    stage("encode tr-en", "done", at=14),
)


def test_the_steps_are_those_that_the_configuration_has():
    config = load_config(["recipes=smoke"])
    assert train_steps(config) == STEPS
    dense = replace(config, model=replace(config.model, moe=replace(config.model.moe, num_experts=0)))
    assert train_steps(dense) == tuple(step for step in STEPS if step != "routing")
    alone = replace(config, baselines=replace(config.baselines, tiers=[]))
    assert train_steps(alone) == tuple(step for step in STEPS if step != "baselines")


def test_a_step_lasts_until_the_next_one_begins():
    steps = steps_at(status(*PREPARED, stage("train moe", "running", at=20)), 25)
    assert [(step.name, step.place, step.seconds) for step in steps] == [
        ("fetch", "1/10", 4),
        ("clean", "2/10", 5),
        ("vocab", "3/10", 3),
        ("encode", "4/10", 8),
        ("train", "5/10", 5),
    ]
    assert [step.finished() for step in steps[:2]] == ["[1/10] fetch: 4 s", "[2/10] clean: 5 s"]
    assert [stage.title for stage in steps[3].stages] == ["encode de-en", "vocab bilingual de-en", "encode tr-en"]


def test_a_step_without_a_stage_of_this_command_is_up_to_date():
    (fetch, clean) = steps_at(status(stage("clean de-en", "done", at=0), stage("clean tr-en", "running", at=2)), 9)
    assert fetch.finished() == "[1/10] fetch: up to date"
    assert clean.running(status()) == "[2/10] clean: 1 done, tr-en"
    assert steps_at(status(), 3)[0].running(status()) == "[1/10] fetch: checking what is up to date"


@pytest.mark.parametrize(
    ("stages", "line"),
    [
        ([stage("train moe", "running", at=0)], "[5/10] train: 10 s so far"),
        ([stage("train moe", "waiting", at=0)], "[5/10] train: waits for another command that does the same"),
        (
            [stage("train moe", "running", at=0, seconds=600, fraction=0.4, step=1300)],
            "[5/10] train: step 1,300, loss 3.20, 15 min left",
        ),
        ([stage("translate moe", "running", at=0, fraction=0.25)], "[6/10] translate: 25 %, 30 s left"),
        (
            [
                stage("train bilingual de-en", "done", at=0),
                stage("train bilingual tr-en", "running", at=0, fraction=0.5, step=9),
                stage("translate bilingual de-en", "running", at=10),
            ],
            "[8/10] baselines: tr-en 50 %, de-en translated",
        ),
    ],
)
def test_a_running_step_says_how_far_it_is(stages, line):
    run = status(*stages)
    assert steps_at(run, 60)[-1].running(run) == line


def test_bilingual_models_have_the_time_of_those_that_are_done():
    batch = Batch(what="bilingual models", num_done=3, total=7, seconds_left=130.0)
    run = status(stage("train bilingual ru-en", "running", at=0, fraction=0.5), batch=batch)
    assert steps_at(run, 60)[-1].running(run) == "[8/10] baselines: 3 of 7, 2 min left; ru-en 50 %"
    assert run_seconds_left(run) == 130 + 2 + 5  # then scores and the report


def test_the_page_on_the_first_run_shows_such_lines():
    """At 14:16 by the clock, after three minutes."""
    training = stage("train moe", "running", at=5, seconds=180, fraction=3 / 11, step=300)
    run = status(
        stage("vocab moe", "done", at=0), stage("encode de-en", "done", at=2), training, baselines=8 / 11, capped=1
    )
    run = replace(run, stages=(*run.stages[:2], replace(training, loss=4.83)), started=now() - timedelta(seconds=185))
    *_, vocab, encode, train = begun_steps(run, now())
    whole = re.sub(r"\d\d:\d\d$", "14:32", run_line(run))
    block = "\n".join([vocab.finished(), encode.finished(), train.running(run), whole])
    assert block in (ROOT / "docs" / "first-run.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("state", "step", "line"),
    [
        ("stopped", 1300, "[5/10] train: stopped at step 1,300 after 40 s"),
        ("stopped", None, "[5/10] train: stopped after 40 s"),
        ("failed", None, "[5/10] train: failed after 40 s"),
    ],
)
def test_a_step_that_did_not_end_well_says_so(state, step, line):
    assert steps_at(status(*PREPARED, stage("train moe", state, at=20, step=step)), 60)[-1].ended() == line


TRAINED = stage("train moe", "done", at=0, seconds=100)
TRANSLATING = stage("translate moe", "running", at=100, seconds=10, fraction=0.25)
LATER = 5 + 5 + 2 + 5  # translation, routing, scores and report, apart from their lines
HALF = stage("train moe", "running", at=0, seconds=50, fraction=0.5)


@pytest.mark.parametrize(
    ("stages", "expected", "seconds"),
    [
        ([], {}, None),
        ([], {"training": 400}, None),  # the rows of the pairs decide what the bilingual models take
        ([], {"training": 400, "baselines": 0.5}, 600 + LATER),
        ([], {"training": 400, "baselines": 0.5, "translation": 0.1}, 600 + 40 + LATER),
        ([HALF], {"training": 400, "baselines": 2.0}, 50 + 2 * 100 + LATER),  # at its own pace, not at the plan's
        ([HALF], {"training": 400, "baselines": 0.0, "translation": 0.1}, 50 + 10 + LATER),
        ([stage("train moe", "running", at=0, seconds=30)], {"training": 400, "baselines": 0.0}, 370 + LATER),
        ([stage("train moe", "running", at=0, resumed_at=0.5)], {"training": 400, "baselines": 0.0}, 190 + LATER),
        ([TRAINED, TRANSLATING], {"baselines": 2.0, "translation": 9.0}, 30 + 200 + LATER - 5),
        (
            [TRAINED, stage("translate moe", "running", at=100)],
            {"baselines": 2.0},
            200 + LATER - 5,
        ),  # longer than usual
        ([TRAINED, stage("score x", "running", at=100)], {"baselines": 2.0}, 5),
    ],
)
def test_the_time_left_is_that_of_all_steps_from_training_on(stages, expected, seconds):
    assert run_seconds_left(status(*stages, **expected)) == pytest.approx(seconds)


BATCH = Batch(what="bilingual models", num_done=3, total=7, seconds_left=130.0)


@pytest.mark.parametrize(
    ("batch", "expected", "word"),
    [
        (None, {"capped": 1.0}, "at most"),
        (None, {"capped": 0.0}, "about"),
        (None, {}, "about"),
        (BATCH, {"capped": 1.0}, "about"),  # the others are taken to stop as early as those that are done
        (replace(BATCH, num_done=7), {"capped": 1.0}, "at most"),  # the candidates of the search are done
    ],
)
def test_a_time_of_whole_budgets_is_the_longest_one(batch, expected, word):
    began = replace(stage("train bilingual de-en", "running", at=0), started=now() - timedelta(seconds=40))
    trained = replace(TRAINED, started=began.started - timedelta(seconds=100))
    run = replace(status(trained, began, batch=batch, baselines=9.0, **expected), started=trained.started)
    assert re.fullmatch(rf"2 min so far, {word} \d+ min left in all, until \d\d:\d\d", run_line(run))
    scoring = replace(run, stages=(*run.stages, replace(stage("score x", "running", at=0), started=now())))
    assert "about" in run_line(scoring)


def test_the_time_since_the_bilingual_models_began_counts():
    began = replace(stage("train bilingual de-en", "running", at=0), started=now() - timedelta(seconds=40))
    run = status(replace(TRAINED, started=began.started - timedelta(seconds=100)), began, baselines=2.0)
    assert run_seconds_left(run) == pytest.approx(160 + 2 + 5, abs=2)


def test_a_command_that_trains_nothing_has_no_estimate():
    assert run_seconds_left(status(steps=DATA_STEPS, training=400.0, baselines=1.0)) is None
    assert run_seconds_left(status(steps=BASELINE_STEPS, training=400.0, baselines=2.0)) == 800


def test_the_last_line_has_the_time_of_the_whole_command():
    run = replace(status(HALF, baselines=2.0), started=now() - timedelta(seconds=1000))
    assert run_line(run).startswith("17 min so far, about 4 min left in all, until ")
    assert run_line(replace(run, expected={})) == "17 min so far"


def test_small_models_that_clean_belong_to_that_step():
    cleaning = [
        stage("scores de-en", "done", at=4),
        stage("clean de-en", "done", at=5),
        stage("vocab dual de-en 1", "done", at=6),
        stage("encode dual en-de 1", "done", at=7),
        stage("train dual en-de 1", "done", at=8),
        stage("select de-en", "done", at=20),
        stage("vocab moe", "running", at=30),
    ]
    steps = steps_at(status(stage("fetch corpus train", "done", at=0), *cleaning), 40)
    assert [(step.name, len(step.stages), step.seconds) for step in steps] == [
        ("fetch", 2, 5.0),
        ("clean", 5, 25.0),
        ("vocab", 1, 10.0),
    ]
