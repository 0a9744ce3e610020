"""A new run takes the vocabulary and the weights of a finished one, the tiny run in tests/fixtures/run-0.2.0."""

import json
import logging
import shutil
from dataclasses import replace

import pytest

from pipeline.checked_json import dump_checked, load_checked
from pipeline.commands.data import show_data
from pipeline.commands.origin import find_origin
from pipeline.commands.train import train
from pipeline.corpus.languages import LangPair
from pipeline.dag import stages
from pipeline.dag.removal import remove_unused
from pipeline.dag.reuse import check_tags, warn_of_bytes
from pipeline.dag.run_record import ledger
from pipeline.dag.store import Store
from pipeline.dag.system import Trained, multilingual
from pipeline.dag.training import prepare
from tests.corpora import clean_pair
from tests.corpora import prepare as prepare_corpus
from tests.unit.commands.conftest import FIXTURE, MODEL, NO_RULES, REUSED, ROWS, STEP, VOCABULARY, corpus_of


def train_key(config):
    origin = find_origin(config)
    system = multilingual(config, [LangPair("tr", "en")], origin)
    return stages.train(system, origin.vocabulary, {}).key()


def new_weights(place, key):
    """Make another model of the same sizes, as a new training would, and return its reference in a record."""
    directory = shutil.copytree(place / "artifacts" / "train" / MODEL, place / "artifacts" / "train" / key)
    (state,) = (directory / "checkpoints").glob("step-*/state.json")
    content = load_checked(state.read_text(encoding="utf-8"))
    content["shards"] = dict.fromkeys(content["shards"], "0" * 64)
    state.write_text(dump_checked(content), encoding="utf-8")
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"][str(state.relative_to(directory))]["bytes"] = state.stat().st_size
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return f"train/{key}"


def test_a_run_is_named_or_given_by_its_path(place, config):
    origin = find_origin(config(*REUSED))
    assert (origin.vocabulary.stage, origin.vocabulary.key) == ("vocab", VOCABULARY)
    assert origin.checkpoint == place / "artifacts" / STEP
    by_path = [place / "runs" / "old", place / "artifacts" / "train" / MODEL, place / "artifacts" / STEP]
    for path in by_path:
        assert find_origin(config(REUSED[0], f"train.initialize_from={path}")).checkpoint == origin.checkpoint
    assert find_origin(config("vocab=shared", f"vocab.from_run={place}/runs/old")).vocabulary == origin.vocabulary
    in_sweep = config(f"runtime.runs={place}/runs/sweep", *REUSED)  # beside which the run is
    assert find_origin(in_sweep) == origin


def test_weights_given_by_a_path_cannot_be_removed_meanwhile(place, config):
    origin = find_origin(config(REUSED[0], f"train.initialize_from={place}/artifacts/train/{MODEL}"))
    (place / "runs" / "old" / "run.json").unlink()  # no run uses them
    remove_unused(place / "artifacts", place / "runs", lambda removal: True)
    assert origin.checkpoint.exists()
    origin.store._held.close()  # as at the end of the process
    remove_unused(place / "artifacts", place / "runs", lambda removal: True)
    assert not origin.checkpoint.exists()


def test_the_key_has_the_content_and_not_the_name(place, config):
    by_name = train_key(config(*REUSED))
    assert by_name == train_key(config(REUSED[0], f"train.initialize_from={place}/artifacts/{STEP}"))
    assert by_name != train_key(config(REUSED[0]))
    shutil.copytree(place / "runs" / "old", place / "runs" / "same")
    assert by_name == train_key(config(REUSED[0], "train.initialize_from=same"))
    record = json.loads((place / "runs" / "old" / "run.json").read_text(encoding="utf-8"))
    record["systems"]["moe"][0]["artifacts"]["model"] = new_weights(place, "a" * 16)
    (place / "runs" / "old" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert by_name != train_key(config(*REUSED))  # the run was trained anew


def test_the_settings_of_the_vocabulary_are_those_of_the_run(config):
    """The recipe's sizes are of no use, and baselines have a vocabulary of their own, as without the run."""
    own, reused = config(), config("vocab.from_run=old")
    assert (own.vocab.source_size, own.vocab.target_size) == (4000, 2000)
    assert (reused.vocab.source_size, reused.vocab.target_size, reused.vocab.shared) == (400, 400, True)
    assert reused.vocab.from_run == "old"
    assert reused.to_json()["vocab"]["from_run"] == "old"
    assert "from_run" not in own.to_json()["vocab"]
    extended = config("vocab.from_run=old", "vocab.extend={ru: en}", "vocab.extend_size=300")
    assert extended.vocab == replace(reused.vocab, extend={"ru": "en"}, extend_size=300)
    assert extended.to_json()["vocab"].items() >= {"extend": {"ru": "en"}, "extend_size": 300}.items()
    sampled = config("vocab.from_run=old", "vocab.extend={ru: en}", "vocab.character_coverage=0.95")
    assert sampled.vocab == replace(reused.vocab, extend={"ru": "en"}, character_coverage=0.95)
    assert not {"extend", "extend_size", "trim"} & reused.to_json()["vocab"].keys()
    (tier,) = reused.baselines.tiers
    assert [tier] == own.baselines.tiers == extended.baselines.tiers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vocab.from_run=odl"], r"vocab\.from_run=odl: .* no finished run; did you mean old\?"),
        (["train.initialize_from=odl"], r"train\.initialize_from=odl: .* no finished run; did you mean old\?"),
        (["vocab.from_run=begun"], r"vocab\.from_run=begun: .*/begun holds no run.json, so there is no finished run"),
        (["train.initialize_from=data/none"], r"train\.initialize_from=data/none is neither a checkpoint"),
        (["train.initialize_from=new"], r"initialize_from=new is the run itself; give the new run another NAME"),
        (
            ["vocab.shared=false", REUSED[0]],
            r"vocab\.shared=false: vocab\.from_run=old has one vocabulary for both sides",
        ),
        (
            ["vocab=separate", REUSED[0]],
            r"vocab=separate: vocab\.from_run=old has one vocabulary for both sides; leave",
        ),
        (
            [REUSED[1]],
            r"that model has one vocabulary for both sides, and vocab\.shared=false here; use its vocabulary, by",
        ),
        ([REUSED[0], "vocab.source_size=500"], r"vocab\.source_size=500 has no effect with vocab\.from_run=old"),
        (
            ["vocab.extend={ru: en}"],
            r"vocab\.extend changes the vocabulary of a finished run; name the run, by vocab\.fr",
        ),
        ([REUSED[0], "vocab.extend_size=300"], r"vocab\.extend_size=300 has no effect without vocab\.extend; name"),
        (
            [REUSED[0], "vocab.extend={ru: null}", "vocab.extend_size=0"],
            r"vocab\.extend\.ru=null with vocab\.extend_size=0 adds neither .* to 1 or more \(the default is 2000\)",
        ),
        (
            [*REUSED, "vocab.extend={ru: en}", "train.trainable=[norms]"],
            r"vocab\.extend: new pieces need rows .* and train\.trainable=\['norms'\] freezes these",
        ),
        (
            [*REUSED, "vocab.extend={ru: en}", "train.lora={rank: 2}"],
            r"vocab\.extend: new pieces need rows of the embeddings that train, and train\.lora freezes these",
        ),
        (
            [REUSED[0], "vocab.extend={ru: fr}"],
            r"vocab\.extend\.ru=fr: the vocabulary of old has no tag for fr; there are en",
        ),
        (
            [REUSED[0], "vocab.extend={en: en}"],
            r"vocab\.extend\.en=en: the vocabulary of old has a tag for en already; write \{en: null\} to add pieces",
        ),
        (
            ["baselines.tiers=[{up_to: 0, vocab: {extend: {ru: en}}}]"],
            r"baselines\.tiers\[0\]\.vocab\.extend: a bilingual model has a vocabulary of its own; leave it out",
        ),
        (
            ["baselines.tiers=[{up_to: 0, vocab: {from_run: old}}]"],
            r"baselines\.tiers\[0\]\.vocab\.from_run: a bilingual model has a vocabulary of its own; leave it out",
        ),
        (
            [*REUSED, "model.dim=16", "model.decoder_layers=4"],
            r"initialize_from=old does not fit the model: it has model\.dim=12 model\.decoder_layers=2; set these; "
            r"target_embedding_VM is \[400, 16\] here, target_embedding_VM is \[400, 12\] there",
        ),
        (
            [*REUSED, "model.moe.num_experts=0"],
            r"it has model\.moe\.num_experts=2; set these; decoder\.layers\.1\.feed_forward\.wi_MH is not there",
        ),
        (
            [*REUSED, "model.moe.num_experts=4"],
            r"it has model\.moe\.num_experts=2; set these; decoder\.layers\.1\.feed_forward",
        ),
        ([*REUSED, "model.decoder_layers=1"], r"decoder_layers=2; set these; decoder\.layers\.1.* is not here"),
    ],
)
def test_what_does_not_fit_is_an_error_before_work(place, config, words, message):
    (place / "runs" / "begun").mkdir()
    with pytest.raises(ValueError, match=message):
        train(config(*words))
    assert not (place / "runs" / "new").exists()
    assert {path.name for path in (place / "artifacts").glob("[!.]*")} == {"train", "vocab"}


def test_make_data_checks_the_same(place, config):
    with pytest.raises(ValueError, match=r"initialize_from=new is the run itself"):
        show_data(config("train.initialize_from=new"))
    assert not (place / "runs" / "new").exists()


def test_the_text_is_encoded_with_the_vocabulary_of_the_run(place, config):
    show_data(config(f"corpus={FIXTURE}/corpus", *REUSED))
    assert [path.name for path in (place / "artifacts" / "vocab").iterdir() if path.is_dir()] == [VOCABULARY]
    (manifest,) = (place / "artifacts" / "encode").glob("*/manifest.json")
    inputs = json.loads(manifest.read_text(encoding="utf-8"))["inputs"]
    assert (inputs["vocabulary"]["stage"], inputs["vocabulary"]["key"]) == ("vocab", VOCABULARY)


def test_an_artifact_that_is_gone_is_named_with_the_setting(place, config):
    shutil.rmtree(place / "artifacts" / "vocab")
    with pytest.raises(ValueError, match=rf"vocab\.from_run=old: artifact vocab/{VOCABULARY} is not in .* \(it was"):
        find_origin(config(*REUSED))


def test_languages_and_sources_without_a_tag_are_errors(place, config):
    vocabulary, vocab = find_origin(config(*REUSED)).vocabulary, config(*REUSED).vocab
    check_tags(vocab, vocabulary, prepare_corpus(corpus_of(place / "known", "de", "en", ROWS), "de-en", place / "a"))
    corpus = prepare_corpus(corpus_of(place / "turned", "en", "tr", ROWS), "en-tr", place / "a")
    message = (
        r"old: its vocabulary has no tag for tr, the target of en-tr, but for en; cho.* vocab.extend=\{tr: en\}, or"
    )
    for extend in (None, {"tr": None}):
        with pytest.raises(ValueError, match=message):
            check_tags(replace(vocab, extend=extend), vocabulary, corpus)
    check_tags(replace(vocab, extend={"tr": "en"}), vocabulary, corpus)
    with pytest.raises(
        ValueError, match=r"vocab\.extend\.ru: no pair of the run has this language; they have en, tr; leave ru out"
    ):
        check_tags(replace(vocab, extend={"tr": "en", "ru": None}), vocabulary, corpus)
    files = "".join(
        f"- {{split: {s}, path: {s}.tr-en.tsv, format: tsv, pair: tr-en}}\n" for s in ("train", "dev", "test")
    )
    manifest = f"name: c\ntitle: t\nlicence: MIT\ncitation: c\nfiles:\n{files}".replace("train,", "train, tag: bt,")
    corpus = prepare_corpus(corpus_of(place / "tagged", "tr", "en", ROWS, manifest), "tr-en", place / "a")
    with pytest.raises(
        ValueError, match=r"no tag for bt, which marks a source of tr-en, but for none; leave that sour"
    ):
        check_tags(vocab, vocabulary, corpus)


def test_text_that_the_vocabulary_spells_in_bytes_is_warned_of(place, config, caplog):
    vocabulary = find_origin(config(*REUSED)).vocabulary
    turkish = clean_pair(FIXTURE / "corpus", "tr-en", place / "a", rules=NO_RULES)
    lines = (FIXTURE / "corpus" / "train.tr-en.tsv").read_text(encoding="utf-8").splitlines()
    rows = [(f"選択範囲を移動{chr(0x4E00 + number)}", line.split("\t")[1]) for number, line in enumerate(lines)]
    japanese = clean_pair(corpus_of(place / "foreign", "ja", "en", rows), "ja-en", place / "a", rules=NO_RULES)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warn_of_bytes("old", vocabulary, {LangPair("tr", "en"): turkish})
        assert caplog.messages == []
        warn_of_bytes("old", vocabulary, {LangPair("tr", "en"): turkish, LangPair("ja", "en"): japanese})
    (message,) = caplog.messages
    assert message.startswith("warning: vocab.from_run=old: ")
    assert " % of the source pieces of ja-en are single bytes or unknown" in message
    # Eight characters of three bytes, beside the four to seven pieces of " train" and the space before the sentence.
    assert 24 / 31 < float(message.removeprefix("warning: vocab.from_run=old: ").partition(" ")[0]) / 100 < 24 / 28


def test_weights_of_another_vocabulary_are_refused_before_the_text_is_encoded(place, config):
    """The new run has trained a vocabulary of its own, because vocab.from_run is missing."""
    settings = config("vocab=shared", "vocab.source_size=350", "vocab.target_size=350", REUSED[1])
    cleaned = clean_pair(FIXTURE / "corpus", "tr-en", place / "artifacts", rules=NO_RULES)
    pair = LangPair("tr", "en")
    with pytest.raises(
        ValueError, match=r"step-00000160 was trained with another vocabulary; use that one, by vocab\.f"
    ):
        prepare(Store(place / "artifacts"), {pair: cleaned}, multilingual(settings, [pair], find_origin(settings)))
    assert not (place / "artifacts" / "encode").exists()


def test_weights_and_a_vocabulary_of_different_runs_are_refused_before_work(place, config):
    other = shutil.copytree(place / "artifacts" / "vocab" / VOCABULARY, place / "artifacts" / "vocab" / ("b" * 16))
    for model in other.glob("*.model"):
        content = model.read_bytes()
        model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    shutil.copytree(place / "runs" / "old", place / "runs" / "other")
    record = json.loads((place / "runs" / "other" / "run.json").read_text(encoding="utf-8"))
    record["systems"]["moe"][0]["artifacts"]["vocabulary"] = f"vocab/{'b' * 16}"
    (place / "runs" / "other" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=r"step-00000160 was trained with another vocabulary; use that one"):
        find_origin(config("vocab.from_run=other", REUSED[1]))


def test_the_record_names_the_artifacts_of_the_other_run(place, config):
    settings = config(*REUSED)
    origin = find_origin(settings)
    (place / "artifacts" / "train" / MODEL / "log").mkdir()
    (place / "artifacts" / "train" / MODEL / "log" / "ledger.json").write_text("{}")
    model = Store(place / "artifacts").find("train", MODEL)
    system = multilingual(settings, [LangPair("tr", "en")], origin)
    costs = ledger(Trained(system=system, model=model, translations=model))
    assert costs["artifacts"]["initialized_from"] == f"train/{MODEL}"
    assert costs["artifacts"]["vocabulary"] == f"vocab/{VOCABULARY}"
    lone = replace(
        system,
        train=replace(
            system.train,
            initialize_from=str(shutil.copytree(model.path / "checkpoints" / "step-00000160", place / "lone")),
        ),
    )
    assert "initialized_from" not in ledger(Trained(system=lone, model=model, translations=model))["artifacts"]
