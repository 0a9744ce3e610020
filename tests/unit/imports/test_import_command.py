"""Imports of small checkpoints; tests/golden/test_import.py compares with transformers itself."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file

from pipeline.__main__ import main
from pipeline.commands.train import train
from pipeline.config import ROOT, load_config
from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.languages import LangPair
from pipeline.dag.reuse import check_tags
from pipeline.dag.store import Store
from pipeline.engine.checkpoint.weights import shapes_of
from pipeline.export.ctranslate2 import _check as check_ctranslate2_export
from pipeline.export.weights import named_weights
from pipeline.imports.command import import_checkpoint
from pipeline.imports.config import load_import
from pipeline.imports.languages import bcp47_codes, pairs_of, tag_language
from pipeline.model.config import MoEConfig
from pipeline.train.upcycling import check_fit, initialize_from
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.encode import encode
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.imported_tags import tag_token
from pipeline.vocab.tokenizer import Vocabulary
from tests.corpora import clean_pair
from tests.exports import random_model
from tests.tiny_checkpoints import CONFIGS, TAGS, edited, loaded, run_import

REUSED = VocabConfig(shared=True, source_size=64, target_size=64, from_run="mine")


@pytest.mark.parametrize("checkpoint", ["dense", "moe"], indirect=True)
def test_an_imported_model_has_the_weights_and_settings(checkpoint, caplog):
    run = run_import(checkpoint, pairs="de-en,zho_Hans-deu_Latn")
    model, vocabulary = loaded(run)
    weights = named_weights(model)
    expected = load_file(checkpoint / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    config = CONFIGS["moe" if model.moe_layers() else "dense"]
    assert replace(model.config, moe=config.moe) == config
    assert model.config.moe.output_scale == pytest.approx(config.moe.output_scale)
    assert [pair.name for pair in run.pairs] == ["de-en", "zh-Hans-de"]
    assert vocabulary.tags == {"de": 61, "en": 62, "zh-Hans": 63, "zh-Hant": 64}
    (ids,) = vocabulary.encode_source(["the window"], "en", "de")
    assert (ids[0], ids[-1]) == (61, 2)
    assert vocabulary.decode_target([[62, *ids[1:]]]) == ["the window"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_16_bits_become_float32(checkpoint, dtype):
    weights = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    short = {name: tensor.to(dtype) for name, tensor in weights.items()}
    shared = short["model.shared.weight"]
    torch.save(
        {**short, "lm_head.weight": shared, "model.encoder.embed_tokens.weight": shared},
        checkpoint / "pytorch_model.bin",
    )
    model, _ = loaded(run_import(checkpoint))
    for name, tensor in named_weights(model).items():
        assert torch.equal(tensor, short[name].float())


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("", "LANG_PAIRS is empty; give the directions .* has de, en, zh-Hans, zh-Hant"),
        ("de-fr", "LANG_PAIRS: pair 'de-fr'.* no 'fr'"),
    ],
)
def test_pairs_are_those_of_the_tags(checkpoint, pairs, message):
    with pytest.raises(ValueError, match=message):
        run_import(checkpoint, pairs=pairs)


def test_a_run_that_was_trained_is_left_alone(checkpoint):
    record = checkpoint.parent / "runs" / "mine" / "run.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"recipe": "demo"}')
    with pytest.raises(ValueError, match=r"NAME=mine: .* holds another run; choose another NAME"):
        run_import(checkpoint)
    assert record.read_text() == '{"recipe": "demo"}'
    record.write_text('{"recipe": "import", "imported_from": "elsewhere"}')
    with pytest.raises(ValueError, match=r"NAME=mine: .* holds another run"):
        run_import(checkpoint)


def test_what_the_command_line_lacks_is_said():
    with pytest.raises(ValueError, match=r"FROM is empty"):
        load_import(["name=mine"])
    with pytest.raises(ValueError, match=r"NAME='' must be a plain directory name"):
        load_import(["source=x"])
    with pytest.raises(ValueError, match=r"FROM=a/b/c: .* is no directory, and no name on the Hugging Face hub"):
        import_checkpoint(load_import(["source=a/b/c", "name=mine"]))


def test_a_checkpoint_of_the_hub_is_taken_from_its_cache(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub" / "models--someone--nllb"
    snapshot = repository / "snapshots" / ("0" * 40)
    (repository / "refs").mkdir(parents=True)
    with pytest.raises(
        ValueError, match="FROM=someone/nllb is no directory, and the Hugging Face hub does not give it"
    ):
        run_import(checkpoint, "source=someone/nllb")
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot.parent.mkdir()
    checkpoint.rename(snapshot)
    assert run_import(checkpoint, "source=someone/nllb").record()["imported_from"] == "someone/nllb"


def test_an_import_can_be_trained_on_as_it_is_and_as_a_mixture(checkpoint):
    run = run_import(checkpoint)
    directory = run.model.path / "checkpoints" / "step-00000000"
    vocabulary = Vocabulary.load(run.vocabulary.path)
    config = CONFIGS["dense"]
    check_fit("mine", directory, config, shared=True)
    with pytest.raises(ValueError, match=r"it has model.biases=True; set these"):
        check_fit("mine", directory, replace(config, biases=False), shared=True)
    mixture = replace(config, moe=MoEConfig(num_experts=4, expert_dim=48))
    model = random_model(mixture, vocabulary, seed=2)
    initialize_from(directory, model, vocabulary.sha256)
    dense, _ = loaded(run)
    experts, network = model.encoder.layers[1].feed_forward.experts, dense.encoder.layers[1].feed_forward
    for expert in range(4):
        assert torch.equal(experts.bi_E1H[expert, 0], network.bi_H)
        assert torch.equal(experts.bo_E1M[expert, 0], network.bo_M)
        assert torch.equal(experts.wi_EMH[expert], network.wi_MH)
    assert "encoder.layers.0.self_attention.bq_X" in shapes_of(directory)


def test_an_import_has_no_text_of_its_own(checkpoint):
    run = run_import(checkpoint)
    with pytest.raises(ValueError, match=r"run mine was imported .*; fine-tune it on a corpus, and name that run"):
        run.inputs(Store(checkpoint.parent / "artifacts"))


def test_the_rows_of_a_corpus_have_the_tag_of_each_side(checkpoint, tmp_path):
    run = run_import(checkpoint)
    rows, out = clean_pair(ROOT / "data" / "sample", "de-en", tmp_path / "store"), tmp_path / "encoded"
    out.mkdir()
    limits = {"max_source_tokens": 600, "max_target_tokens": 600}
    encode(run.vocabulary.path, rows.path, LangPair("de", "en"), out=out, **limits)
    for split in ("train", "dev"):
        encoded = EncodedSplit.open(out, split)
        assert {int(encoded.source(row)[0]) for row in range(len(encoded))} == {61}
        assert {int(encoded.target(row)[0]) for row in range(len(encoded))} == {62}
        assert {int(encoded.target(row)[-1]) for row in range(len(encoded))} == {2}
    vocabulary = Vocabulary.load(run.vocabulary.path)
    text = next(iter_bitext(rows.path, "dev"))["tgt"][0].as_py()
    assert encoded.target(0).tolist() == [*vocabulary.first_target_tags("en"), *vocabulary.encode_target([text])[0]]


def test_both_languages_of_a_pair_need_a_tag(checkpoint):
    run = run_import(checkpoint)
    tables = {"pairs": [LangPair("fr", "en")], "tables_of": lambda pair, split: []}
    with pytest.raises(ValueError, match=r"no tag for fr, the source of fr-en, .* has de, .*; add one, as vocab\.ex"):
        check_tags(REUSED, run.vocabulary, SimpleNamespace(**tables))
    with pytest.raises(ValueError, match=r"source language 'fr' has no tag"):
        Vocabulary.load(run.vocabulary.path).encode_source(["a"], "en", "fr")


def test_other_commands_know_an_import(checkpoint, capfd):
    run = run_import(checkpoint)
    place = [f"runtime.{name}={checkpoint.parent}/{name}" for name in ("runs", "artifacts")]
    assert main(["runs", *place]) == 0
    assert re.search(r"mine +done +import +de-en", capfd.readouterr().out)
    assert main(["remove", "UNUSED=1", *place]) == 0
    assert run.model.path.is_dir()
    assert run.vocabulary.path.is_dir()
    with pytest.raises(ValueError, match=r"mine holds an imported model; choose another name, as NAME=mine-2"):
        train(load_config(["name=mine", "recipes=smoke", *place]))
    assert main(["remove", "NAME=mine", *place]) == 0
    assert not run.model.path.exists()
    assert not (checkpoint.parent / "runs" / "mine").exists()


def test_the_same_directory_in_another_spelling_is_the_same_source(checkpoint):
    run_import(checkpoint)
    run = run_import(checkpoint, f"source={checkpoint.parent}/./checkpoint/", pairs="en-de")
    assert [pair.name for pair in run.pairs] == ["en-de"]


@pytest.mark.parametrize(("penalty", "expected"), [(0.0, 0.0), (None, 1.0), (0.5, 0.5)])
def test_the_length_penalty_is_that_of_the_checkpoint(checkpoint, penalty, expected):
    edited(checkpoint, length_penalty=penalty)
    assert run_import(checkpoint).decode.length_penalty == expected


def test_settings_that_are_off_are_in_the_record_no_more_than_in_one_of_a_training(checkpoint):
    """A page that compares two runs would name them as a difference."""
    recorded = run_import(checkpoint).record()["config"]["decode"]
    assert recorded.keys() == load_config([]).to_json()["decode"].keys()


def test_ctranslate2_cannot_hold_the_vocabulary(checkpoint):
    model, vocabulary = loaded(run_import(checkpoint))
    if not model.config.moe.num_experts:  # a model of its own, which has no biases, may take the vocabulary
        with pytest.raises(ValueError, match=r"cannot hold an imported vocabulary, .* choose format=huggingface"):
            check_ctranslate2_export(replace(model.config, biases=False), vocabulary)


def test_codes_of_languages_are_short_and_clear():
    codes = ["arb_Arab", "acm_Arab", "prs_Arab", "pes_Arab", "lvs_Latn", "ltg_Latn", "kas_Arab", "kas_Deva", "yue_Hant"]
    expected = ["ar", "acm", "prs", "fa", "lv", "ltg", "ks-Arab", "ks-Deva", "yue"]
    assert bcp47_codes(codes) == dict(zip(codes, expected, strict=True))
    assert bcp47_codes(["pbt_Arab", "quy_Latn", "fuv_Latn"]) == {"pbt_Arab": "ps", "quy_Latn": "qu", "fuv_Latn": "ff"}
    assert bcp47_codes(["de", "ns", "tl", "zh"]) == {"de": "de", "ns": "nso", "tl": "tl", "zh": "zh"}
    names = bcp47_codes(TAGS)
    assert [str(pair) for pair in pairs_of(["de-en", "zho_Hant-eng_Latn"], names, "x")] == ["de-en", "zh-Hant-en"]


@pytest.mark.parametrize("code", ["cv", "pt-BR", "sr-Latn-RS", "de-AT-1996"])
@pytest.mark.parametrize("tokens", [["por_Latn", "srp_Cyrl"], ["__pt__", "__sr__"]])
def test_a_language_that_a_run_added_has_the_same_code_when_it_is_imported_again(code, tokens):
    tags = [tag_language(token) for token in (*tokens, tag_token(code, tokens))]
    assert bcp47_codes(tags) == {tags[0]: "pt", tags[1]: "sr", tags[2]: code}
