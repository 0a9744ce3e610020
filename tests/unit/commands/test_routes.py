"""Directions that a run was not trained on: in one step by a tag, in two steps, or neither."""

import json
from dataclasses import replace

import pytest

from pipeline.corpus.languages import LangPair
from pipeline.dag.store import Store
from pipeline.finished_run import FinishedRun
from pipeline.routes import Route, find_route, find_ways
from tests.tiny_checkpoints import CONFIGS, run_import, train_tokenizer, write_checkpoint

CHINESE = LangPair("de", "zh-Hans")


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A directory with a checkpoint that has tags of four languages by side."""
    root = tmp_path_factory.mktemp("imported")
    write_checkpoint(root / "checkpoint", CONFIGS["dense"], train_tokenizer(root / "spm"))
    return root / "checkpoint"


@pytest.fixture(scope="module")
def run(imported):
    """A run of de-en, en-zh-Hans, de-zh-Hant and zh-Hant-zh-Hans."""
    return run_import(imported, pairs="de-en,en:zh-Hans,de:zh-Hant,zh-Hant:zh-Hans")


def test_a_trained_direction_takes_one_step(run):
    assert find_route(run, "de-en") == Route(pair=LangPair("de", "en"))


def test_english_is_the_first_pivot(run, caplog):
    caplog.set_level("INFO")
    assert find_ways(run, CHINESE).pivots == ("en", "zh-Hant")
    assert find_route(run, "de:zh-Hans") == Route(pair=CHINESE, pivot="en")
    assert caplog.messages == ["de-zh-Hans: in two steps, de-en and en-zh-Hans"]
    assert find_route(run, "de:zh-Hans", pivot="zh_Hant").pivot == "zh-Hant"


def test_a_pivot_must_have_both_directions(run):
    with pytest.raises(ValueError, match=r"pivot=en: run mine does not translate de-zh-Hant through it$"):
        find_route(run, "de:zh-Hant", pivot="en")
    with pytest.raises(ValueError, match=r"does not translate de-zh-Hans through it; it can go through en, zh-Hant$"):
        find_route(run, "de:zh-Hans", pivot="de")
    with pytest.raises(ValueError, match=r"direct=true takes one step, and pivot=en two"):
        find_route(run, "de:zh-Hans", pivot="en", direct=True)


def test_one_step_needs_tags_alone(run):
    assert find_route(run, "zh-Hans:de", direct=True) == Route(pair=LangPair("zh-Hans", "de"))
    assert find_route(run, "de:zh-Hans", direct=True) == Route(pair=CHINESE)
    with pytest.raises(ValueError, match=r"run mine, which translates .*has no 'fr'"):
        find_route(run, "de-fr", direct=True)


def test_without_a_pivot_the_message_names_both_ways(run):
    with pytest.raises(ValueError, match="run mine does not translate") as error:
        find_route(run, "zh-Hans:de")
    assert str(error.value) == (
        "run mine does not translate zh-Hans-de, but de-en, en-zh-Hans, de-zh-Hant, zh-Hant-zh-Hans; not in two steps, "
        "because it was trained on no direction from zh-Hans; direct=true translates by the tag of de alone; or train "
        'one that does (make train LANG_PAIRS="zh-Hans-de")'
    )
    with pytest.raises(ValueError, match=r"trained on no direction into de; direct=true"):
        find_route(run, "zh-Hant:de")
    with pytest.raises(ValueError, match=r"because en-zh-Hans and de-zh-Hant have no third language in common; direct"):
        find_route(run, "en:zh-Hant")


def test_a_pruning_has_fewer_directions_than_its_run(run):
    pruned = replace(run, pairs=(LangPair("de", "en"),), experts="pruned/de-en-0.5.json")
    with pytest.raises(ValueError, match=r"run mine with experts=de-en-0\.5 does not translate") as error:
        find_route(pruned, "de:zh-Hans")
    assert str(error.value).endswith(
        "translate de-zh-Hans, but de-en; not in two steps, because it has no direction into zh-Hans; direct=true "
        "translates by the tag of zh-Hans alone; or leave experts=de-en-0.5 out"
    )


def test_an_ensemble_takes_no_step_that_a_member_was_not_trained_for(run):
    """A direction that the run has and a member lacks is no untrained one, whose tag would be enough."""
    together = replace(run, pairs=(LangPair("de", "zh-Hant"),), ensemble=(run.model,))
    with pytest.raises(ValueError, match="not in two steps") as error:
        find_route(together, "de-en")
    assert str(error.value).endswith(
        "not by direct=true, because a model of its decode.ensemble was not trained on it; or leave decode.ensemble out"
    )
    assert find_ways(together, CHINESE).direct_fault == ""


def test_without_a_tag_one_step_is_impossible(place):
    run = FinishedRun.open("old", runs=place / "runs", store=Store(place / "artifacts"))
    fault = r"because its vocabulary has no tag of tr, but of en; or train one"
    with pytest.raises(ValueError, match=rf"no direction from en; not by direct=true, {fault}"):
        find_route(run, "en-tr")
    with pytest.raises(ValueError, match=r"cannot translate en-tr with direct=true: its vocabulary has no tag of tr"):
        find_route(run, "en-tr", direct=True)


def test_a_gate_by_task_has_no_experts_for_another_task(imported, run):
    path = run.directory / "run.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    gate = {"kind": "task", "pairs": "de:en en:zh-Hans"}
    record["config"]["model"]["moe"] |= {"num_experts": 2, "expert_dim": 8, "gate": gate}
    (imported.parent / "runs" / "tasks").mkdir()
    (imported.parent / "runs" / "tasks" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    tasks = FinishedRun.open("tasks", runs=imported.parent / "runs", store=Store(imported.parent / "artifacts"))
    assert find_ways(tasks, CHINESE).direct_fault == "its gate=task has experts for de:en, en:zh-Hans alone"
    gate["by"] = "target"
    (tasks.directory / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert find_ways(tasks, CHINESE).direct_fault == ""
