"""Choices of `make evaluate` before it translates."""

import pytest

from pipeline.commands.evaluate import load_evaluation, recorded_metrics


def test_commands_that_a_record_names_are_not_run():
    score = {"metrics": ["bleu", "comet", "chrf++"], "commands": {"comet": "sh -c 'touch somebody-was-here'"}}
    assert recorded_metrics({"config": {"score": score}}) == ["bleu", "chrf++"]


def test_metrics_that_are_left_out_are_named_with_what_brings_them_back(caplog):
    caplog.set_level("INFO")
    recorded_metrics({"config": {"score": {"metrics": ["bleu", "comet"]}}})
    assert caplog.messages == [
        "the run was also scored by comet; for that give metrics=[bleu,comet] and commands.comet=… again"
    ]


def test_a_metric_of_another_version_is_named():
    with pytest.raises(ValueError, match="scored by 'bleurt', which this version does not know"):
        recorded_metrics({"config": {"score": {"metrics": ["bleu", "bleurt"]}}})


def test_commands_of_the_user_are_checked_first(tmp_path):
    command = ["run=demo", f"corpus={tmp_path}", "metrics=[bleu,comet]"]
    with pytest.raises(
        ValueError,
        match=r"^metrics=\['bleu', 'comet'\] and commands.comet='': such a metric needs its name .* and its command",
    ):
        load_evaluation(command)
    with pytest.raises(ValueError, match="the program no-such-program does not exist"):
        load_evaluation([*command, "commands.comet=no-such-program x"])
    config = load_evaluation([*command, "commands.comet=cat -"])
    assert config.commands.comet == "cat -"


def test_a_challenge_set_has_no_metrics_to_choose(tmp_path):
    command = ["run=demo", f"corpus={tmp_path}", "challenge=true"]
    assert load_evaluation(command).challenge
    with pytest.raises(
        ValueError, match=r"metrics=\[bleu,chrf\] has no effect with challenge=true, .*leave metrics out"
    ):
        load_evaluation([*command, "metrics=[bleu,chrf]"])
