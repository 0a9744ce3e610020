"""The checkpoints that `make import` refuses."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tiny_checkpoints import TAGS, edited, run_import

sparse = pytest.mark.parametrize("checkpoint", ["moe"], indirect=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bart"}, r"model_type=bart; import reads m2m_100 .* and nllb-moe"),
        ({"activation_function": "gelu"}, "activation_function=gelu, and our model computes relu only"),
        ({"scale_embedding": False}, "scale_embedding=False, and our model computes True only"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"decoder_start_token_id": 0}, "decoder_start_token_id=0"),
        ({"decoder_ffn_dim": 64}, "encoder_ffn_dim=48 and decoder_ffn_dim=64, not one value"),
        ({"d_model": None}, "d_model=None, which must be a number from 1 to"),
        ({"decoder_layers": 10**9}, "decoder_layers=1000000000, which must be a number from 1 to"),
        ({"decoder_layers": 10**6}, "config.json asks for 10[0-9]* layers and experts, and its weights have"),
        ({"max_position_embeddings": "x"}, "max_position_embeddings='x', which must be a number"),
        ({"length_penalty": -1}, "the search of generation_config.json or config.json: decode.length_penalty=-1"),
        ({"num_beams": [2]}, "the search of generation_config.json"),
        ({"d_model": 64}, r"shared.weight is \[68, 32\], and \[68, 64\] by config.json"),
        ({"decoder_layers": 4}, r"lack model.decoder.layers.3.* which config.json asks for"),
        ({"decoder_layers": 2}, r"have model.decoder.layers.2.*, which our model has no place for"),
    ],
)
def test_another_model_is_refused(checkpoint, changes, message):
    edited(checkpoint, **changes)
    with pytest.raises(ValueError, match=message):
        run_import(checkpoint)
    assert not (checkpoint.parent / "runs").exists()
    assert not (checkpoint.parent / "artifacts").exists()


@sparse
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"second_expert_policy": "random"}, "second_expert_policy=random"),
        ({"router_bias": True}, "router_bias=True"),
        ({"router_dtype": "bfloat16"}, "router_dtype=bfloat16"),
        ({"moe_eval_capacity_token_fraction": 0.5}, "moe_eval_capacity_token_fraction=0.5"),
        ({"decoder_sparse_step": 4}, "encoder_sparse_step=2 and decoder_sparse_step=4"),
    ],
)
def test_another_routing_is_refused(checkpoint, changes, message):
    edited(checkpoint, **changes)
    with pytest.raises(ValueError, match=message):
        run_import(checkpoint)


@sparse
def test_who_would_be_dropped_first_does_not_matter(checkpoint):
    edited(checkpoint, batch_prioritized_routing=True)
    assert run_import(checkpoint).record()["config"]["model"]["moe"]["gate"]["prioritized"] is False


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "config.json is missing; copy it"),
        ("model.safetensors", "has no weights; it must have one of model.safetensors, pytorch_model.bin"),
        ("sentencepiece.bpe.model", "sentencepiece.bpe.model is missing; copy it"),
        ("special_tokens_map.json", "name no tag of a language, such as __de__ or deu_Latn"),
    ],
)
def test_a_missing_file_is_named(checkpoint, name, message):
    (checkpoint / name).unlink()
    with pytest.raises(ValueError, match=message):
        run_import(checkpoint)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer_class": "SMALL100Tokenizer"}, "tokenizer_class=SMALL100Tokenizer, and import knows M2M100Tok"),
        ({"tokenizer_class": "NllbTokenizerFast", "legacy_behaviour": True}, "puts the source tag last; import puts"),
    ],
)
def test_a_tokenizer_that_puts_tags_elsewhere_is_refused(checkpoint, settings, message):
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=message):
        run_import(checkpoint)
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "NllbTokenizerFast"}))
    run_import(checkpoint)


def test_a_missing_shard_is_named(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    index = {"weight_map": {"model.shared.weight": "model-00001-of-00002.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"model-00001-of-00002.safetensors, which .* names, is missing; copy all 1"):
        run_import(checkpoint)


def test_an_index_that_leads_out_of_the_directory_is_refused(checkpoint):
    (checkpoint / "model.safetensors").rename(checkpoint.parent / "model.safetensors")
    index = {"weight_map": {"model.shared.weight": "../model.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"'../model.safetensors', which is no plain file name"):
        run_import(checkpoint)


class Program:
    """An object whose pickle makes a directory when it is loaded."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.directory),)


@pytest.mark.parametrize("content", ["program", "legacy", "other", "numbers", "text", "empty"])
def test_a_file_that_is_no_weights_is_refused_and_never_run(checkpoint, content):
    (checkpoint / "model.safetensors").unlink()
    path, sign = checkpoint / "pytorch_model.bin", checkpoint.parent / "program-was-run"
    if content == "empty":
        path.write_bytes(b"")
    elif content == "text":
        path.write_text("version https://git-lfs.github.com/spec/v1")
    elif content == "legacy":
        path.write_bytes(pickle.dumps(Program(sign)))
    else:
        values = {"program": {"model.shared.weight": Program(sign)}, "other": {"a": {}}, "numbers": [torch.ones(2)]}
        torch.save(values[content], path)
    with pytest.raises(
        ValueError, match=r"pytorch_model.bin is refused, because it (is no file of weights|holds other)"
    ):
        run_import(checkpoint)
    assert not sign.exists()


def test_a_file_that_is_cut_off_is_refused(checkpoint):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"model.safetensors is no file of safetensors"):
        run_import(checkpoint)


def test_an_output_projection_of_its_own_is_refused(checkpoint):
    weights = load_file(checkpoint / "model.safetensors")
    save_file({**weights, "lm_head.weight": weights["model.shared.weight"].clone()}, checkpoint / "model.safetensors")
    run_import(checkpoint)
    save_file({**weights, "lm_head.weight": weights["model.shared.weight"] + 1}, checkpoint / "model.safetensors")
    with pytest.raises(ValueError, match=r"lm_head.weight differs from model.shared.weight"):
        run_import(checkpoint)


def test_a_tokenizer_of_another_checkpoint_is_refused(checkpoint):
    edited(checkpoint, "special_tokens_map.json", additional_special_tokens=[*TAGS, "fra_Latn", "a", "b", "c"])
    with pytest.raises(ValueError, match=r"the id 69, and its embedding only 68 rows"):
        run_import(checkpoint)


def token(content, special=True):
    return {"content": content, "special": special}


NUMBERED = {str(61 + place): token(tag) for place, tag in enumerate(TAGS)}


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (
            {**NUMBERED, "65": token("domain", special=False)},
            r"has the added token 'domain', which is text and no piece",
        ),
        ({**NUMBERED, "2": token("fra_Latn")}, r"has the id 2, and 0 to 3 are <s>, <pad>, </s>, <unk>"),
        ({**NUMBERED, "-1": token("fra_Latn")}, r"has the id -1, and 0 to 3"),
        (
            {**NUMBERED, "x": token("fra_Latn")},
            r"the added tokens of tokenizer_config.json or tokenizer.json are damag",
        ),
        ({**NUMBERED, "65": "fra_Latn"}, r"the added tokens of tokenizer_config.json or tokenizer.json are damaged"),
        ([], r"name no tag of a language"),
        (
            {"61": token("__ns__"), "62": token("__nso__")},
            r"its tag nso? is of a language that another of its tags has",
        ),
    ],
)
def test_a_damaged_tokenizer_is_refused(checkpoint, tokens, message):
    (checkpoint / "special_tokens_map.json").unlink()
    (checkpoint / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": tokens}))
    names = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, **{f"piece {number}": number for number in range(4, 60)}}
    if "__ns__" in str(tokens):
        (checkpoint / "vocab.json").write_text(json.dumps(names))
    with pytest.raises(ValueError, match=message):
        run_import(checkpoint)
