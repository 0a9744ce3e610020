"""The settings of validations that translate, and how validations compare."""

import json

import pytest

from pipeline.config import load_config
from pipeline.train.config import CheckpointConfig, TrainConfig
from pipeline.train.retention import Saved, apply, mark, saved
from pipeline.train.sample_score import evenly_spaced
from pipeline.train.totals import Progress
from tests.unit.train.test_retention import checkpoint

BUDGET = {"max_steps": 100, "max_tokens": 0, "learning_rate": 1.0, "warmup_steps": 1, "validate_every": 1}
NO_BASELINES = "baselines=none"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["train.validate_metric=chrF++"],
            r"validate_metric='chrF\+\+' is not one of loss, chrf\+\+, chrf, bleu",
        ),
        (["train.validate_lines=50"], r"train.validate_lines=50 is of translations, .* set train.validate_metric=chrf"),
        (["train.validate_beam=4"], r"train.validate_beam=4 is of translations"),
        (
            ["train.validate_metric=comet"],
            r"validate_metric=comet with train.validate_command='': comet and cometkiwi need",
        ),
        (
            ["train.validate_metric=bleu", "train.validate_command=cat"],
            r"validate_command='cat': .* no other metric has",
        ),
        (
            ["train.validate_metric=comet", "train.validate_command=no-such-program x"],
            r"train.validate_command='no-such-program x': the program no-such-program does not exist",
        ),
        (["score.metrics=[bleu,comet]"], r"score.commands.comet='': such a metric needs its name .* and its command"),
        (["score.commands.metricx=cat"], r"score.metrics=\['bleu', 'chrf\+\+'\] and score.commands.metricx='cat'"),
        (
            ["score.metrics=[bleu,comet]", "score.commands.comet=no-such-program x"],
            r"score.commands.comet='no-such-program x': the program no-such-program does not exist",
        ),
        (["train.validate_metric=bleu", "train.validate_lines=0"], r"train.validate_lines=0 must be at least 1"),
        (
            ["train.validate_metric=chrf", "layout=model", "runtime.processes=2", "runtime.mp=2", "runtime.ep=1"],
            r"train.validate_metric=chrf translates with the model in training, and layout.H=model cuts its "
            r"hidden units over 2 processes, .*; set train.validate_metric=loss, or layout=gshard",
        ),
        (
            ["train.validate_metric=chrf", "layout.G=data", "runtime.processes=2", "runtime.ep=2"],
            r"layout.E=expert cuts its experts over 2 processes",
        ),
    ],
)
def test_wrong_settings_are_named_before_anything_runs(overrides, message):
    with pytest.raises(ValueError, match=message):
        load_config([*overrides, NO_BASELINES])


@pytest.mark.parametrize(
    "overrides",
    [
        ["runtime.processes=4", "runtime.ep=2", "batch.groups_per_step=4"],
        ["layout=model"],  # one process cuts nothing
        ["layout.G=data", "model.moe.num_experts=0", "runtime.processes=2", "runtime.ep=2"],  # a copy in each process
    ],
)
def test_groups_and_experts_may_be_cut(overrides):
    assert load_config(["train.validate_metric=chrf", *overrides, NO_BASELINES]).train.translates


def test_the_command_of_a_candidate_is_checked_too():
    train = "{validate_metric: comet, validate_command: no-such-program x}"
    search = f"baselines.search={{pairs: 2, candidates: [{{name: judged, train: {train}}}]}}"
    with pytest.raises(ValueError, match="the program no-such-program does not exist"):
        load_config(["recipes=demo", search])


def test_bilingual_models_are_validated_as_the_main_one_is():
    config = load_config(["train.validate_metric=chrf++", "train.validate_lines=50"])
    assert {tier.train.validate_metric for tier in config.baselines.tiers} == {"chrf++"}
    assert {tier.train.validate_lines for tier in config.baselines.tiers} == {50}


def test_a_record_names_the_metric_only_where_it_is_not_the_loss():
    assert not [key for key in load_config([]).to_json()["train"] if key.startswith("validate_m")]
    train = load_config(["train.validate_metric=chrf++"]).to_json()["train"]
    assert [key for key in train if key.startswith("validate_")] == ["validate_every", "validate_metric"]
    assert "commands" not in load_config([]).to_json()["score"]
    score = load_config(["score.metrics=[bleu,comet]", "score.commands.comet=cat -"]).to_json()["score"]
    assert score["commands"] == {"comet": "cat -"}


def test_patience_follows_the_score_and_of_equal_scores_the_loss():
    """A model that produces nothing yet has a score of 0 at each validation, and its loss still falls."""
    config = TrainConfig(**BUDGET, patience=2, validate_metric="bleu")
    progress = Progress()
    validations = [(3.0, 0.0), (2.5, 0.0), (2.6, 7.0), (2.2, 6.0), (2.9, 7.5), (2.0, 7.5), (1.0, 7.0), (1.5, 7.4)]
    for step, (loss, score) in enumerate(validations, start=1):
        progress.step = step
        assert not progress.finished(config)
        progress.judge(loss, score)
    assert (progress.best_step, progress.best_score, progress.best_loss) == (6, 7.5, 2.0)
    assert progress.finished(config)
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


def test_progress_without_scores_is_written_as_before():
    progress = Progress(step=1)
    progress.judge(2.0)
    assert "best_score" not in progress.to_json()


def test_the_best_checkpoints_are_those_with_the_best_scores(tmp_path):
    for step, loss, score in ((1, 3.0, 5.0), (2, 1.0, 4.0), (3, 2.5, 5.0), (4, None, None), (5, 2.6, 4.5)):
        checkpoint(tmp_path, step, loss, **({} if score is None else {"validation_score": score}))
    assert saved(tmp_path)[2] == Saved(name="step-00000003", step=3, loss=2.5, score=5.0)
    apply(tmp_path, CheckpointConfig(best_k=2))
    assert json.loads((tmp_path / "best.json").read_text())["best_k"] == ["step-00000003", "step-00000001"]


def test_of_equal_validations_the_earlier_is_better():
    checkpoints = [Saved(name=name, step=step, loss=2.0, score=5.0) for step, name in enumerate("ab")]
    assert mark(checkpoints, CheckpointConfig(best_k=2)).best_k == ["a", "b"]


def test_a_sample_is_spread_evenly():
    assert evenly_spaced([*range(100, 110)], 3) == [101, 105, 108]
    assert evenly_spaced([7, 8, 9], 5) == [7, 8, 9]
    assert evenly_spaced([*range(1000)], 1) == [500]
