"""docs/training.md: its settings exist, and its schedules need what it says."""

import re

import pytest

from eval.records.decisive import NOT_OF_TRAINING
from pipeline.config import ROOT, load_config
from pipeline.train.schedule import USED, Schedule
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
KEYS = set(re.findall(r"^\| `([\w.\[\]]+)` \|", (ROOT / "docs" / "config-keys.md").read_text("utf-8"), re.MULTILINE))
OPTIONS = TEXT.partition("## Which setting is which option of fairseq or Marian?")[2].partition("\n## ")[0]


def test_the_counterparts_of_others_options_exist():
    cells = [line.rstrip(" |").rpartition("|")[2] for line in OPTIONS.splitlines() if line.startswith("| ")][1:]
    keys = {key for cell in cells for key in re.findall(r"`([a-z_]+\.[\w.]+)(?:=[^`]*)?`", cell)}
    assert len(cells) > 15
    assert len(keys) > 25
    assert keys <= KEYS


def test_values_that_stand_for_others_compose():
    values = re.findall(r"`([a-z_.]+=[^`]+)`", OPTIONS)
    assert len(values) == 3
    config = load_config(values)
    assert (config.vocab.shared, config.train.ema, config.decode.length_norm) == (True, 0.9999, "power")


def test_commands_have_names_of_their_own_and_bilingual_models_take_over_what_the_text_says():
    commands = re.findall(r"^make train .*$", TEXT, re.MULTILINE)
    configs = {config.name: config for config in (load_config(overrides_of("train", one)) for one in commands)}
    assert len(configs) == len(commands)
    assert load_config([]).name not in configs
    train = configs["adafactor"].train
    assert (train.optimizer, train.learning_rate, train.warmup_steps) == ("adafactor", 0.01, 0)
    assert {tier.train.optimizer for tier in load_config(["train=adafactor"]).baselines.tiers} == {"adafactor"}
    of_run = load_config(["model.activation=swiglu", "model.norm=rms"])
    assert {(tier.model.activation, tier.model.norm) for tier in of_run.baselines.tiers} == {("swiglu", "rms")}
    assert {tier.model.ffn_dim for tier in of_run.baselines.tiers} == {load_config([]).model.ffn_dim}
    assert not configs["adafactor"].baselines.tiers
    assert not configs["swiglu"].baselines.tiers


def test_settings_that_may_change_before_a_resumption_are_no_part_of_the_key():
    page = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    changeable = re.findall(r"^\| `train\.([\w.]+)` \|", page, re.MULTILINE)
    assert len(changeable) == 4
    assert {name.partition(".")[0] for name in changeable} <= {*NOT_OF_TRAINING}
    assert "validate_every" not in NOT_OF_TRAINING


def test_defaults_are_those_of_the_table():
    train = load_config([]).train
    assert f"times the median of the last {train.spikes.window} steps (`train.spikes.window`)" in TEXT
    assert f"After {train.spikes.patience} skipped steps in a row (`train.spikes.patience`)" in TEXT
    assert train.spikes.threshold == 0
    assert f"label smoothing ({train.label_smoothing}); the largest norm of the gradient ({train.clip_norm:g})" in TEXT
    assert f"β {train.beta1} and {train.beta2}" in TEXT
    assert f"`{train.schedule.kind}` (default)" in TEXT
    assert train.patience == 0


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("linear", {"train.max_steps": 1000}),
        ("linear", {"train.schedule.decay_steps": 500}),
        ("cosine", {"train.max_steps": 1000}),
        ("cosine", {"train.schedule.decay_steps": 500}),
        ("warmup_stable_decay", {"train.schedule.decay_steps": 100, "train.max_steps": 1000}),
        ("warmup_stable_decay", {"train.schedule.decay_steps": 100, "train.schedule.hold_steps": 500}),
    ],
)
def test_schedules_need_the_steps_that_the_table_names(kind, steps):
    def schedule(words):
        train = load_config([f"train.schedule.kind={kind}", *words]).train
        return Schedule.of(
            train.schedule, peak=train.learning_rate, warmup=train.warmup_steps, max_steps=train.max_steps
        )

    words = [f"{key}={value}" for key, value in steps.items()]
    assert schedule(words)(10) > 0
    for left_out in range(len(words)):
        with pytest.raises(ValueError, match=r"train\.(max_steps|schedule\.decay_steps)=0"):
            schedule(words[:left_out] + words[left_out + 1 :])
    assert set(re.findall(r"`(\w+)`", re.search(r"^\| `train.schedule.kind` \|(.*)$", TEXT, re.MULTILINE)[1])) >= set(
        USED
    )
