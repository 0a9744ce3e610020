"""Models of several runs translate together: the tiny run in tests/fixtures/run-0.2.0, and one with other weights."""

import json
from dataclasses import replace

import pytest

from eval.records.scores import load_scores
from pipeline.commands.evaluate import evaluate, load_evaluation
from pipeline.commands.origin import find_origin
from pipeline.commands.translate import load_translate, translate
from pipeline.commands.translated_corpus import made_by
from pipeline.dag import stages
from pipeline.decode.model import load_ensemble, load_model
from pipeline.decode.search.ensemble import Ensemble
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from tests.unit.commands.conftest import (
    CPU,
    DECODE,
    MODEL,
    OTHER,
    PAIR,
    ROWS,
    checkpoints,
    corpus_of,
    opened,
    places,
    runs,
    vocabulary,
    words,
    write_record,
)


def texts(place, model, decode, sources=tuple(source for source, _ in ROWS[:9])):
    lines = [Line(text=source, source="tr", target="en", number=number) for number, source in enumerate(sources)]
    translator = Translator(model, vocabulary(place), decode, max_source_tokens=48)
    return [outcome.text for _, outcome in sorted(translator.translate(lines))]


@pytest.mark.parametrize("combine", ["linear", "log_linear", "weights"])
def test_models_are_loaded_as_they_are_combined(other, combine):
    decode, paths = replace(DECODE, ensemble=("other",), combine=combine), checkpoints(other)
    members = [load_model(path, vocabulary(other), longest=48, config=DECODE, device=CPU) for path in paths]
    alone = [texts(other, member, DECODE) for member in members]
    if combine == "weights":
        model = members[0]
        for weight, second in zip(model.parameters(), members[1].parameters(), strict=True):
            mean = weight.data.float() + (second.data.float() - weight.data.float()) / 2
            weight.data = mean.double()
    else:
        model = Ensemble(members, combine)
    loaded = load_ensemble(paths, vocabulary(other), longest=48, config=decode, device=CPU)
    assert texts(other, loaded, DECODE) == texts(other, model, DECODE)
    assert texts(other, loaded, DECODE) not in alone


def test_the_command_translates_by_the_models_together(other):
    (other / "in").write_text("".join(f"{source}\n" for source, _ in ROWS[:9]), encoding="utf-8")
    files = (f"input={other}/in", f"output={other}/out", "run=old", "pair=tr-en")
    settings = ("decode.beam=3", "decode.precision=fp64", "decode.combine=log_linear", "decode.ensemble=[other]")
    translate(load_translate(words(other, *files, *settings)))
    decode = replace(DECODE, ensemble=("other",), combine="log_linear")
    model = load_ensemble(checkpoints(other), vocabulary(other), longest=48, config=decode, device=CPU)
    assert (other / "out").read_text(encoding="utf-8").splitlines() == texts(other, model, decode)


def test_test_sets_are_translated_by_the_models_together(other, capsys):
    tests = corpus_of(other / "tests", "tr", "en", ROWS[:9])
    record = opened(other).record()
    del record["systems"]["bilingual"]  # whose models are not among the fixtures
    write_record(other, "old", record)
    settings = ("decode.beam=3", "decode.precision=fp64", "decode.ensemble=[other]", "resamples=100", "metrics=[bleu]")

    def scored(*more):
        load = load_evaluation([f"corpus={tests}", "run=old", *words(other, *settings, *more)])
        (directory,) = evaluate(load)
        record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
        assert record["config"]["decode"].get("ensemble", []) == list(load.decode["ensemble"])
        assert record["config"]["decode"]["beam"] == 3
        assert record.get("ensemble") == ({"other": f"train/{OTHER}"} if load.decode["ensemble"] else None)
        lines = (directory / "translations" / "moe" / "tr-en.jsonl").read_text(encoding="utf-8").splitlines()
        assert load_scores(directory / "scores.csv")[0].n_test == len(lines) == 9
        return [json.loads(line)["hypothesis"] for line in lines]

    together = scored()
    translations = sorted((other / "artifacts" / "translate").glob("*/manifest.json"))
    assert len(translations) == 1
    inputs = json.loads(translations[0].read_text(encoding="utf-8"))["inputs"]
    assert inputs["ensemble 1"]["key"] == OTHER
    assert scored() == together  # repeated, it translates nothing
    assert scored("decode.ensemble=[]") != together
    assert len([*(other / "artifacts" / "translate").glob("*/manifest.json")]) == 2
    decode = replace(DECODE, ensemble=("other",))
    model = load_ensemble(checkpoints(other), vocabulary(other), longest=48, config=decode, device=CPU)
    sources = [f"{source} test" for source, _ in ROWS[:9]]
    assert together == texts(other, model, decode, sources)


def test_a_new_run_translates_its_test_sets_with_others(other, config):
    origin = find_origin(config("vocab.from_run=old", "decode.ensemble=[old,other]"))
    assert [member.model.key for member in origin.ensemble] == [MODEL, OTHER]
    run = opened(other)
    model, rows = run.model, {PAIR: run.vocabulary}
    runtime = config().runtime

    def key(decode=DECODE, ensemble=()):
        members = [member.model for member in ensemble]
        stage = stages.translate(
            rows, run.vocabulary, model, decode=decode, runtime=runtime, label="moe", ensemble=members
        )
        return stage.key()

    named = replace(DECODE, ensemble=("old", "other"))
    assert key(named) == key()  # for a model that translates alone, as the bilingual ones do
    assert len({key(), key(named, origin.ensemble), key(named, origin.ensemble[1:])}) == 3
    assert key(replace(named, combine="log_linear"), origin.ensemble) != key(named, origin.ensemble)


def test_a_citation_names_the_other_models(other):
    decode = replace(DECODE, ensemble=("other",), choose="mbr")
    run = opened(other).with_ensemble(decode, load_translate(runs(other)).runtime, **places(other))
    how = f"beam 3, minimum Bayes risk by chrf, linear ensemble with train/{OTHER})"
    assert made_by(run, decode).endswith(how)
