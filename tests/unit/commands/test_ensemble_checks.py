"""Faults of an ensemble are errors before any work, and what it leaves out is a warning."""

import json
import shutil
from dataclasses import replace

import pytest

from pipeline.checked_json import dump_checked, load_checked
from pipeline.commands.origin import find_origin
from pipeline.commands.translate import load_translate, translate
from pipeline.dag.run import data_run
from pipeline.decode.model import load_ensemble
from pipeline.finished_run import find_ensemble
from pipeline.routes import find_route
from tests.unit.commands.conftest import (
    CPU,
    DECODE,
    OTHER,
    PAIR,
    ROWS,
    VOCABULARY,
    add_run,
    checkpoints,
    corpus_of,
    opened,
    places,
    runs,
    vocabulary,
    write_record,
)

TOGETHER = replace(DECODE, ensemble=("other",))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["decode.ensemble=[old]"], r"decode.ensemble=\['old'\] names the run itself, which takes part anyway"),
        (["decode.ensemble=[othre]"], r"decode.ensemble=othre: .*did you mean other\?"),
        (["decode.ensemble=[other,other]"], "decode.ensemble=.* names a run twice"),
        (["decode.ensemble=other"], r"decode.ensemble='other' must be a list, as \[other\]"),
        (["decode.combine=weights"], "decode.combine=weights is of decode.ensemble; name its runs"),
        (
            ["decode.ensemble=[other]", "decode.average=2"],
            "ensemble=other: with that model, decode.average=2: of the last",
        ),
        (["decode.ensemble=[runs/old]"], "runs/old is the run itself; leave it out"),
        (["decode.ensemble=[twin]"], "twin has the same model as old, which would count twice; leave twin out"),
        (["decode.ensemble=[other,runs/other]"], "runs/other has the same model as other, which would count twice"),
    ],
)
def test_mistakes_are_named_before_a_model_is_loaded(other, settings, message):
    write_record(other, "twin", {**opened(other).record(), "name": "twin"})
    with pytest.raises(ValueError, match=message):
        translate(load_translate(runs(other, *settings)))


def test_experts_of_an_ensemble_are_not_cut(other):
    runtime = replace(load_translate(runs(other)).runtime, processes=2, ep=2, decode_experts="sharded")
    with pytest.raises(ValueError, match=r"decode_experts=sharded: the models of decode.ensemble are whole in every"):
        find_ensemble(replace(DECODE, ensemble=("other",)), runtime, "old", **places(other))


def test_a_new_run_cannot_name_itself(other, config):
    with pytest.raises(ValueError, match=r"decode.ensemble=\['new'\] names the run itself"):
        find_origin(config("decode.ensemble=[new]"))


def test_a_run_with_another_vocabulary_is_refused(other, config):
    directory = shutil.copytree(other / "artifacts" / "vocab" / VOCABULARY, other / "artifacts" / "vocab" / ("b" * 16))
    (model,) = directory.glob("*.model")
    model.write_bytes(model.read_bytes()[:-1] + b"!")
    record = json.loads((other / "runs" / "other" / "run.json").read_text(encoding="utf-8"))
    record["systems"]["moe"][0]["artifacts"]["vocabulary"] = f"vocab/{'b' * 16}"
    write_record(other, "other", record)
    with pytest.raises(
        ValueError, match=rf"ensemble=other: its vocabulary is .*{'b' * 16}, and that of old is .*equal"
    ):
        translate(load_translate(runs(other, "decode.ensemble=[other]")))
    with pytest.raises(ValueError, match=r"ensemble=other: its vocabulary is .*, and that of new is"):
        find_origin(config("vocab.from_run=old", "decode.ensemble=[other]"))


def test_only_pairs_of_all_models_are_translated(other, caplog):
    """And sources as long as all models were trained on."""
    record = opened(other).record()
    languages = {
        **record["languages"],
        "de-en": {"source": "de", "target": "en"},
        "de-tr": {"source": "de", "target": "tr"},
    }
    shapes = [{"rows": 1, "source": 96, "target": 96}]
    batch = {**record["config"]["batch"], "shapes": shapes}
    config = {**record["config"], "batch": batch}
    write_record(other, "wide", {**record, "name": "wide", "languages": languages, "config": config})
    wide, runtime = opened(other, "wide"), load_translate(runs(other)).runtime
    assert {pair.name for pair in wide.pairs} == {"tr-en", "de-en", "de-tr"}
    assert not caplog.messages
    together = wide.with_ensemble(TOGETHER, runtime, **places(other))
    assert together.pairs == (PAIR,)
    assert (wide.max_source_tokens, together.max_source_tokens) == (96, 48)
    assert caplog.messages == [
        "warning: decode.ensemble=other: it was not trained on de-en, de-tr, which run wide does not translate with it"
    ]
    for find in (together.pair, lambda text: find_route(together, text)):
        with pytest.raises(ValueError, match=r"run wide with its decode.ensemble, which translates tr-en: .*de"):
            find("de-en")


def test_a_direction_that_another_model_lacks_is_named_with_the_ensemble(other):
    together = opened(other).with_ensemble(TOGETHER, load_translate(runs(other)).runtime, **places(other))
    with pytest.raises(ValueError, match=r"run old with its decode.ensemble does not translate en-tr, but tr-en;"):
        together.pair("en-tr")


NEW = {
    "pairs": (
        ["pairs=[de-en]"],
        ["decode.combine=linear"],
        r"ensemble=other: it was not trained on de-en; name runs of",
    ),
    "weights": (
        ["pairs=[tr-en]", "model.dim=24"],
        ["decode.combine=weights"],
        r"model.dim is 12 in other, and 24 in new",
    ),
}


@pytest.mark.parametrize("fault", NEW)
def test_a_new_run_learns_it_before_its_text_is_cleaned(other, config, tmp_path, fault):
    settings, decode, message = NEW[fault]
    corpus = corpus_of(tmp_path / "corpus", *settings[0][7:12].split("-"), ROWS[:9])
    new = config(f"corpus={corpus}", "decode.ensemble=[other]", *settings, *decode)
    with pytest.raises(ValueError, match=message):
        data_run(new, origin=find_origin(new))
    assert not (other / "artifacts" / "clean").exists()


def test_a_pruned_model_translates_alone(other):
    """Also that of a run which translated its test sets together with others."""
    run = replace(opened(other), decode=TOGETHER, experts="/a/few.json")
    runtime = load_translate(runs(other)).runtime
    with pytest.raises(
        ValueError,
        match=r"experts=few: a pruned model translates alone; set decode.ensemble=\[\], or leave experts out",
    ):
        run.with_ensemble(run.decode, runtime, **places(other))
    alone = run.decode_with({"ensemble": []}, "cpu")
    assert run.with_ensemble(alone, runtime, **places(other)) is run


def test_a_capacity_that_another_model_cannot_have_is_refused(place):
    add_run(place, lambda state: state["model"]["moe"].update(gate={"kind": "dropless"}))
    runtime = load_translate(runs(place)).runtime
    with pytest.raises(
        ValueError, match=r"ensemble=other: with that model, decode.capacity_factor=1.0: .*gate=dropless"
    ):
        find_ensemble(replace(TOGETHER, capacity_factor=1.0), runtime, "old", **places(place))


def test_a_run_says_when_a_name_has_another_model_by_now(other, caplog):
    record = opened(other).record()
    for model, messages in ((OTHER, 0), ("d" * 16, 1)):
        write_record(other, "old", {**record, "ensemble": {"other": f"train/{model}"}})
        run = opened(other)
        run.with_ensemble(TOGETHER, load_translate(runs(other)).runtime, **places(other))
        assert len(caplog.messages) == messages
    assert caplog.messages[0].endswith(
        f"run old translated its test sets with another model of that name, train/{'d' * 16}; now it is train/{OTHER}"
    )


def test_a_recorded_ensemble_whose_runs_are_gone_has_a_remedy(place):
    """If the user names them, the message is the one of a name that does not exist."""
    record = opened(place).record()
    record["config"]["decode"]["ensemble"] = ["gone"]
    write_record(place, "old", record)
    with pytest.raises(
        ValueError,
        match=r"^run old translated its test sets together with other runs: decode.ensemble=gone: .* finished run.*; "
        r"to translate by its own model alone, set decode.ensemble=\[\]$",
    ):
        translate(load_translate(runs(place)))
    with pytest.raises(ValueError, match=r"^decode.ensemble=lost: .* there is no finished run"):
        translate(load_translate(runs(place, "decode.ensemble=[lost]")))


def test_weights_of_another_meaning_have_no_mean(place):
    """They are refused when runs are named, and when they are loaded."""
    add_run(place, lambda state: state["model"]["moe"].update(output_scale=0.5))
    decode = replace(TOGETHER, combine="weights")
    with pytest.raises(
        ValueError, match=r"combine=weights: model.moe.output_scale is 0.5 in other, and 1.0 in old; take"
    ):
        opened(place).with_ensemble(decode, load_translate(runs(place)).runtime, **places(place))
    with pytest.raises(ValueError, match=r"output_scale is 0.5 in .*, and 1.0 in the run; take"):
        load_ensemble(checkpoints(place), vocabulary(place), config=decode, device=CPU)


def test_weights_of_other_shapes_have_no_mean(other):
    (step,) = checkpoints(other)[1].glob("step-*")
    state = load_checked((step / "state.json").read_text(encoding="utf-8"))
    state["model"]["ffn_dim"] = 36
    (step / "state.json").write_text(dump_checked(state), encoding="utf-8")
    decode = replace(DECODE, ensemble=("other",), combine="weights")
    with pytest.raises(
        ValueError, match=r"decode.combine=weights: .* has shape \(12, 36\) in .*, and \(12, 24\) in the"
    ):
        load_ensemble(checkpoints(other), vocabulary(other), config=decode, device=CPU)
