"""A finished run says before anything is loaded whether processes can share its experts."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.commands.translate import load_translate
from pipeline.config import load_config
from pipeline.dag.artifact import Artifact
from pipeline.decode.config import DecodeConfig
from pipeline.earlier_runs import RECORD
from pipeline.finished_run import FinishedRun


@pytest.fixture
def run_with(tmp_path):
    """Return a function that makes a run whose model has so many experts."""

    def make(num_experts, **changes):
        words = ["recipes=smoke", f"model.moe.num_experts={num_experts}", "runtime.processes=1", "runtime.ep=1"]
        (tmp_path / RECORD).write_text(json.dumps({"config": load_config(words).to_json()}))
        artifact = Artifact(stage="train", key="", path=Path(), content="")
        run = FinishedRun(
            name="demo",
            commit="",
            pairs=(),
            model=artifact,
            vocabulary=artifact,
            decode=DecodeConfig(),
            directory=tmp_path,
            max_source_tokens=64,
        )
        return replace(run, **changes)

    return make


def test_what_a_run_recorded_can_be_undone_by_the_setting_that_it_belongs_to(run_with):
    recorded = DecodeConfig(search="sample", draws=8, choose="mbr", utility="bleu", ensemble=("a",), combine="weights")
    run = run_with(0, decode=recorded)
    for setting, value, neutral, default in (
        ("choose", "likeliest", "utility", "chrf"),
        ("ensemble", [], "combine", "linear"),
        ("search", "beam", "draws", 0),
    ):
        decode = run.decode_with({setting: value, "beam": None}, "cpu")
        assert getattr(decode, neutral) == default
        with pytest.raises(ValueError, match=rf"^decode.{neutral}="):
            run.decode_with({setting: value, neutral: getattr(recorded, neutral)}, "cpu")
    assert run.decode_with({"search": "beam"}, "cpu").utility == "bleu"


def runtime(*words):
    return load_translate(["run=demo", "pair=de-en", *words]).runtime


@pytest.mark.parametrize(
    ("num_experts", "experts", "words", "message"),
    [
        (
            6,
            "",
            ["runtime.processes=4", "runtime.ep=4"],
            "runtime.ep=4 does not divide the 6 experts of run demo, which",
        ),
        (6, "", ["runtime.processes=4", "runtime.ep=4"], "would share; choose one of [2, 3, 6], and a"),
        (0, "", ["runtime.ep=2"], "runtime.ep=2: run demo has no experts that processes could share; set it to 1"),
        (
            6,
            "/a/b.json",
            ["runtime.ep=2"],
            "runtime.ep=2: a pruned model is not cut further; set it to 1, or leave out experts=b",
        ),
    ],
)
def test_experts_that_cannot_be_shared_are_an_error(run_with, num_experts, experts, words, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run_with(num_experts, experts=experts).check_cut(runtime(*words), DecodeConfig())


def test_an_ensemble_is_not_cut(run_with):
    together = DecodeConfig(ensemble=("other",))
    with pytest.raises(ValueError, match=r"^runtime.ep=2: the models of decode.ensemble are whole in every process; "):
        run_with(6).check_cut(runtime("runtime.ep=2"), together)
    run_with(6).check_cut(runtime("runtime.ep=2", "runtime.decode_experts=replicated"), together)


@pytest.mark.parametrize(
    ("num_experts", "words"),
    [
        (6, ["runtime.processes=6", "runtime.ep=3"]),
        (0, ["runtime.processes=3"]),
        (5, ["runtime.ep=2", "runtime.decode_experts=replicated"]),
    ],
)
def test_others_are_translated_with(run_with, num_experts, words):
    run_with(num_experts).check_cut(runtime(*words), DecodeConfig())
