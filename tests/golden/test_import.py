"""Checkpoints that transformers 4.57.1 makes and reads itself (bench/setup.sh), as runs of ours and exported again."""

import json
import re
from pathlib import Path

import pytest
import torch

from pipeline.__main__ import main
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.decode.search.search import search
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from pipeline.export.command import export_run
from pipeline.export.config import load_export
from pipeline.finished_run import FinishedRun
from pipeline.imports.command import import_checkpoint
from pipeline.imports.config import load_import
from pipeline.vocab.tokenizer import Vocabulary
from tests.golden.test_export import logits_of
from tests.imports import CODES, make_checkpoints, texts_of

NAMES = ["nllb", "m2m", "moe", "shards"]
SEARCH = {"length_norm": "power", "max_length_ratio": 0.0, "max_length_extra": 14}  # as tests.checkpoint_worker


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """The directory of the checkpoints, and what transformers answered about them."""
    root = tmp_path_factory.mktemp("checkpoints")
    return root, make_checkpoints(root)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("place")
    return [f"runtime.runs={root}/runs", f"runtime.artifacts={root}/artifacts"]


@pytest.fixture(scope="module")
def runs(checkpoints, place):
    """The imported runs by name."""
    opened = {}
    for name in NAMES:
        words = [f"source={checkpoints[0] / name}", f"name={name}", "pairs=[de-en,tr-en]", *place]
        import_checkpoint(load_import(words))
        opened[name] = open_run(name, place)
    return opened


def open_run(name, place):
    runs, artifacts = (Path(word.partition("=")[2]) for word in place)
    return FinishedRun.open(name, runs=runs, store=Store(artifacts))


@pytest.fixture(scope="module")
def translators(runs):
    """A translator for each run and beam."""
    translators = {}
    for name, run in runs.items():
        vocabulary = Vocabulary.load(run.vocabulary.path)
        config = DecodeConfig(**SEARCH)
        model = load_model(
            run.model.path / "checkpoints", vocabulary, longest=64, config=config, device=torch.device("cpu")
        )
        for beam in (1, 4):
            config = DecodeConfig(**SEARCH, beam=beam)
            translators[name, beam] = Translator(model, vocabulary, config, max_source_tokens=64)
    return translators


def lines_of():
    return [Line(text=text, source=code, target="en") for code, texts in texts_of("bcp47").items() for text in texts]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_of_any_text_are_theirs(checkpoints, runs, name):
    vocabulary, answer = Vocabulary.load(runs[name].vocabulary.path), checkpoints[1][name]
    for own, (code, texts) in zip(answer["ids"].values(), texts_of("bcp47").items(), strict=True):
        assert vocabulary.encode_source(texts, "en", code) == own
    assert vocabulary.first_target_tags("en") == [answer["tag"]]
    assert any(3 in row for row in answer["ids"][CODES["m2m" if name == "m2m" else "nllb"][0]]), "no text is unknown"


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_theirs(checkpoints, runs, translators, name):
    answer, model = checkpoints[1][name], translators[name, 1].model
    rows = [row for of_code in answer["ids"].values() for row in of_code]
    for source, translation, expected in zip(rows, answer["beam 1"], answer["logits"], strict=False):
        (logits,) = logits_of(model, [source], [[*translation, 2]])
        torch.testing.assert_close(logits, torch.tensor(expected), atol=1e-4, rtol=0)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_generate_finds_our_translations(checkpoints, translators, name, beam):
    answer, translator = checkpoints[1][name], translators[name, beam]
    plan = translator.plan(lines_of())
    parts = sorted((part for batch in plan.batches for part in batch), key=lambda part: part.line)
    best = [hypotheses[0] for hypotheses in search(translator.model, [p.request for p in parts], translator.config)]
    assert [hypothesis.tokens for hypothesis in best] == answer[f"beam {beam}"]
    assert len({tuple(hypothesis.tokens) for hypothesis in best}) > len(best) / 3, "the test would see little"
    if beam > 1:
        assert [hypothesis.score for hypothesis in best] == pytest.approx(answer["scores"], abs=1e-4)
        assert [compact(text) for text in translator.texts(best)] == [compact(text) for text in answer["texts"]]


def compact(text):
    """Drop spaces, and tags of M2M100, which transformers 4.57.1 takes for text that it decodes in parts."""
    return "".join(re.sub("__[a-z]{2,3}__", "", text).split())


@pytest.mark.parametrize("name", NAMES)
def test_an_export_of_an_import_is_the_checkpoint_again(checkpoints, runs, place, tmp_path, name):
    """Weights are equal bit for bit, settings too, and the tokenizer's files are those of the checkpoint."""
    from pipeline.imports.checkpoint import Checkpoint, read

    export_run(load_export([f"run={name}", f"out={tmp_path}/out", *place]))
    there, here = (Checkpoint.find(str(path), tmp_path) for path in (checkpoints[0] / name, tmp_path / "out"))
    with there.opened() as original, here.opened() as exported:
        assert {*exported} == {*original} - {"lm_head.weight", *(n for n in original if "embed_tokens" in n)}
        assert all(torch.equal(read(exported, key), read(original, key)) for key in exported)
    settings, exported = there.json("config.json"), here.json("config.json")
    differing = {key for key in settings.keys() & exported.keys() if settings[key] != exported[key]}
    training = {"attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop"}
    assert differing <= {*training, "max_position_embeddings", "normalize_router_prob_before_dropping"}
    for file in ("sentencepiece.bpe.model", "tokenizer_config.json", "special_tokens_map.json"):
        assert (tmp_path / "out" / file).read_bytes() == (checkpoints[0] / name / file).read_bytes()
    assert "forced_bos_token_id" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_an_imported_run_translates_on_the_command_line(checkpoints, runs, place, translators, tmp_path):
    texts = texts_of("bcp47")["de"][:4]
    (tmp_path / "in.de").write_text("\n".join(texts) + "\n", encoding="utf-8")
    words = [f"input={tmp_path}/in.de", f"output={tmp_path}/out.en", "decode.beam=4", "decode.max_length_ratio=0"]
    assert main(["translate", "NAME=nllb", "PAIR=de-en", *words, "decode.max_length_extra=14", *place]) == 0
    assert (tmp_path / "out.en").read_text(encoding="utf-8").split("\n")[:4] == checkpoints[1]["nllb"]["texts"][:4]


def test_imported_again_nothing_is_written_anew(checkpoints, runs, place, caplog):
    caplog.set_level("INFO")
    words = [f"source={checkpoints[0] / 'nllb'}", "name=nllb", "pairs=[deu_Latn-eng_Latn]", *place]
    directory = import_checkpoint(load_import(words))
    assert not [message for message in caplog.messages if "running" in message]
    assert json.loads((directory / "run.json").read_text())["pairs"] == ["de-en"]
