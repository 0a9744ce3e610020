"""Learning-rate schedules have hand-computed values and no jumps, and their errors name a remedy."""

import math
from itertools import pairwise

import pytest

from pipeline.config import load_config
from pipeline.train.config import TrainConfig
from pipeline.train.schedule import USED, ScheduleConfig


def rate(step, *, peak=1.0, warmup=100, max_steps=1100, **schedule):
    config = TrainConfig(
        max_steps=max_steps,
        max_tokens=1,
        learning_rate=peak,
        warmup_steps=warmup,
        validate_every=1,
        schedule=ScheduleConfig(**schedule),
    )
    return config.learning_rate_at(step)


GOLDEN = [  # schedule, step, rate; peak 1, warm-up 100, at most 1100 steps
    ({}, [(1, 0.01), (50, 0.5), (100, 1.0), (400, 0.5), (10000, 0.1)]),
    (
        {"kind": "warmup_hold_inverse_square_root", "hold_steps": 300},
        [(50, 0.5), (100, 1.0), (400, 1.0), (1600, 0.5), (40000, 0.1)],
    ),
    ({"kind": "linear"}, [(50, 0.5), (100, 1.0), (350, 0.75), (600, 0.5), (1100, 0.0), (2000, 0.0)]),
    ({"kind": "linear", "decay_steps": 500, "floor": 0.2}, [(350, 0.6), (600, 0.2), (1100, 0.2)]),
    (
        {"kind": "cosine"},
        [(50, 0.5), (100, 1.0), (350, (1 + math.sqrt(0.5)) / 2), (600, 0.5), (1100, 0.0), (1101, 0.0)],
    ),
    ({"kind": "cosine", "decay_steps": 300, "floor": 0.1}, [(200, 0.775), (250, 0.55), (400, 0.1), (500, 0.1)]),
    (
        {"kind": "warmup_stable_decay", "decay_steps": 200},
        [(50, 0.5), (100, 1.0), (900, 1.0), (950, 0.75), (1000, 0.5), (1100, 0.0)],
    ),
    (
        {"kind": "warmup_stable_decay", "hold_steps": 100, "decay_steps": 200, "floor": 0.5},
        [(200, 1.0), (300, 0.75), (400, 0.5), (1000, 0.5)],
    ),
]


@pytest.mark.parametrize(("schedule", "values"), GOLDEN)
def test_values(schedule, values):
    for step, expected in values:
        assert rate(step, **schedule) == pytest.approx(expected, abs=1e-12), step
    assert rate(50, peak=4e-3) == pytest.approx(2e-3)


def test_every_schedule_has_golden_values():
    assert {schedule.get("kind", "inverse_square_root") for schedule, _ in GOLDEN} == set(USED)


@pytest.mark.parametrize(("schedule", "values"), GOLDEN)
def test_no_step_jumps(schedule, values):
    """The steepest slope is in the middle of the cosine over its 300 steps: pi / 2 / 300 of the peak."""
    rates = [rate(step, **schedule) for step in range(1, 1200)]
    assert max(abs(b - a) for a, b in pairwise(rates)) <= 0.01 + 1e-12
    assert max(rates) == 1.0


def test_gshards_own_rate():
    """GShard's rate is 1 / sqrt(max(t, 10000)), which configs/train/adafactor.yaml uses."""
    train = load_config(["train=adafactor"]).train
    assert train.optimizer == "adafactor"
    for step in (1, 9999, 10000, 10001, 40000, 1000000):
        assert train.learning_rate_at(step) == pytest.approx(1 / math.sqrt(max(step, 10000)), rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "step"}, r"schedule.kind='step' is not one of inverse_square_root, .*, cosine"),
        (
            {"hold_steps": 5},
            r"hold_steps=5 has no effect with inverse_square_root; .* warmup_hold_inverse_square_root or",
        ),
        ({"kind": "cosine", "hold_steps": 5}, r"hold_steps=5 has no effect with cosine"),
        ({"kind": "warmup_hold_inverse_square_root", "floor": 0.1}, r"floor=0.1 has no effect with warmup_hold"),
        (
            {"kind": "warmup_hold_inverse_square_root", "decay_steps": 1},
            r"decay_steps=1 has no effect with warmup_hold",
        ),
        ({"kind": "linear", "floor": -0.1}, r"floor=-0.1 must not be negative"),
        ({"kind": "linear", "floor": 1.0}, r"floor=1.0 must lie below train.learning_rate=1.0"),
        ({"kind": "linear", "max_steps": 0}, r"max_steps=0: linear needs it, or train.schedule.decay_steps"),
        ({"kind": "cosine", "max_steps": 0}, r"max_steps=0: cosine needs it, or train.schedule.decay_steps"),
        (
            {"kind": "cosine", "max_steps": 100},
            r"max_steps=100 must be at least 101 with cosine: train.warmup_steps=100",
        ),
        ({"kind": "warmup_stable_decay"}, r"decay_steps=0 with warmup_stable_decay: give the steps"),
        (
            {"kind": "warmup_stable_decay", "decay_steps": 5, "max_steps": 0},
            r"max_steps=0: warmup_stable_decay needs it, or train.schedule.hold_steps",
        ),
        (
            {"kind": "warmup_stable_decay", "decay_steps": 50, "max_steps": 120},
            r"must be at least 150 .*warmup_steps=100 and train.schedule.decay_steps=50",
        ),
        ({"warmup": 0}, r"warmup_steps=0 must be at least 1 with inverse_square_root"),
        ({"kind": "warmup_hold_inverse_square_root", "warmup": 0}, r"hold_steps=0 and train.warmup_steps=0"),
        ({"warmup": -1}, r"warmup_steps=-1 must not be negative"),
    ],
)
def test_mistakes_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        rate(1, **settings)


def test_linear_and_cosine_may_do_without_max_steps():
    assert rate(150, kind="linear", decay_steps=100, max_steps=0) == 0.5
    assert rate(1, kind="cosine", warmup=0) == pytest.approx(1.0, abs=1e-5)


def test_a_hold_may_be_as_long_as_the_warmup():
    assert rate(200, kind="warmup_hold_inverse_square_root", hold_steps=100) == 1.0


def test_a_decay_may_take_all_that_the_warmup_leaves():
    assert rate(101, max_steps=101, kind="linear") == 0.0
