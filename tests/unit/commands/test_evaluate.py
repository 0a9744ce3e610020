"""Choices of `make evaluate` before it translates."""

import json
import re

import pytest

from eval.records.faults import FaultRow, FaultyLine, save_faults
from eval.records.scores import ScoreRow, save_scores
from pipeline.commands.evaluate import _faults, _table, load_evaluation, recorded_metrics


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


def test_the_table_of_scores_has_the_mean_of_untrained_directions(tmp_path):
    rows = {"de-en": 9, "de-fr": 0, "fr-de": 0}
    record = {"name": "news", "pairs": [*rows], "train_pairs": rows, "untrained": ["de-fr", "fr-de"]}
    record |= {"systems": {"moe": [], "pivot": []}, "translated": {"pivot": ["de-fr", "fr-de"]}}
    (tmp_path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    scores = [
        ("de-en", "moe", 9),
        ("de-fr", "moe", 1),
        ("de-fr", "pivot", 5),
        ("fr-de", "moe", 2),
        ("fr-de", "pivot", 4),
    ]
    shared = {"metric": "bleu", "ci_low": 0, "ci_high": 10, "n_test": 7, "signature": "s"}
    table = [
        ScoreRow(pair=pair, system=system, train_pairs=rows[pair], score=score, **shared)
        for pair, system, score in scores
    ]
    save_scores(tmp_path / "scores.csv", table)
    lines = [re.split("  +", line) for line in _table(tmp_path, ["bleu"]).splitlines()]
    assert lines[0] == ["pair", "lines", "BLEU multilingual", "BLEU in two steps"]
    assert lines[-2:] == [["mean, untrained", "1.50", "4.50"], ["mean", "4.00", "–"]]
    save_scores(tmp_path / "scores.csv", table[:1])
    assert len(_table(tmp_path, ["bleu"]).splitlines()) == 2


def test_the_table_of_faults_has_one_step_and_two_with_the_references(tmp_path):
    pairs = ["de-fr", "en-de", "en-tlh"]
    record = {"name": "news", "pairs": pairs, "train_pairs": dict.fromkeys(pairs, 9), "untrained": ["de-fr"]}
    record |= {"systems": {"moe": [], "pivot": []}, "translated": {"pivot": ["de-fr"]}}
    (tmp_path / "run.json").write_text(json.dumps(record), encoding="utf-8")
    rows, lines = [], []
    for pair, system, wrong, reason in (
        ("de-fr", "moe", 18, ""),
        ("de-fr", "pivot", 1, ""),
        ("de-fr", "reference", 1, ""),
        ("en-de", "moe", 0, ""),
        ("en-de", "reference", 0, ""),
        ("en-tlh", "moe", 0, "the model does not know tlh"),
        ("en-tlh", "reference", 0, "the model does not know tlh"),
    ):
        counts = {"wrong_language": wrong, "empty": 0, "copied": 0, "repeated": 0, "truncated": 0, "faulty": wrong}
        judged = 0 if reason else 20
        rows.append(
            FaultRow(pair=pair, system=system, n_test=40, judged=judged, length_ratio=1.0, not_judged=reason, **counts)
        )
        lines += [
            FaultyLine(pair=pair, system=system, line=n + 1, fault="wrong_language", degree=9, language="en")
            for n in range(wrong)
        ]
    save_faults(tmp_path, rows, lines)
    assert [re.split("  +", line) for line in _faults(tmp_path).splitlines()] == [
        ["pair", "system", "wrong language", "of references", "any fault", "of references"],
        ["de-fr", "multilingual", "90.0 %", "5.0 %", "45.0 %", "2.5 %"],
        ["de-fr", "in two steps", "5.0 %", "5.0 %", "2.5 %", "2.5 %"],
        ["en-de", "multilingual", "0.0 %", "0.0 %", "0.0 %", "0.0 %"],
        ["en-tlh", "multilingual", "not judged", "–", "0.0 %", "0.0 %"],
        ["languages are not judged for en-tlh: the model does not know tlh"],
        ["The training text was not compared with these lines."],
    ]
