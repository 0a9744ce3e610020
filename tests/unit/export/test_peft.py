"""Adapters as files of peft: their names, and that they and the base model are the merged export.

The format is that of peft's documentation ("PEFT checkpoint format"): a module's name behind base_model.model., lora_A
[rank, inputs] and lora_B [outputs, rank], and weights W + lora_alpha / r · B · A. peft itself loads them too.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.config import ROOT
from pipeline.corpus.languages import LangPair
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.engine.checkpoint import weights
from pipeline.export.command import export_run
from pipeline.export.config import load_export
from pipeline.export.weights import named_weights
from pipeline.finished_run import FinishedRun
from pipeline.model.adapters import add_adapters, merged_difference
from pipeline.model.components import is_adapter
from pipeline.model.config import MoEConfig
from pipeline.model.lora import LoraConfig
from pipeline.train.retention import resolve
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.tokenizer import Vocabulary, train_vocabulary
from tests.exports import Runs, config_of, install_or_skip, random_model

PAIRS = [LangPair("ja", "en"), LangPair("tr", "en")]
LORA = LoraConfig(rank=3, alpha=5.0, dropout=0.1)
MODELS = {"dense": config_of(), "wide": config_of(moe=MoEConfig(num_experts=3, expert_dim=64))}
LINEARS = {  # of an encoder's and of a decoder's layer with a dense network
    "dense": ("self_attn.q_proj", "encoder_attn.v_proj", "fc1", "fc2"),
    "wide": ("self_attn.q_proj", "cross_attention.v_proj", "ffn.fc1", "ffn.fc2"),
}


@pytest.fixture(scope="module")
def runs(prepared, tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("runs"))
    directory = runs.root / "vocabulary"
    directory.mkdir()
    bitexts = dict(zip(PAIRS, map(Path, prepared.bitexts), strict=True))
    train_vocabulary(VocabConfig(shared=True, source_size=2000, target_size=2000), bitexts, directory)
    runs.models = {}
    for name, config in MODELS.items():
        model = random_model(config, Vocabulary.load(directory))
        runs.models[name] = named_weights(model)
        runs.add(f"{name}_base", [model], directory, PAIRS)
        add_adapters(model, LORA)
        generator = torch.Generator().manual_seed(1)
        for key, parameter in model.named_parameters():
            if is_adapter(key):
                parameter.data.normal_(std=0.2, generator=generator)
        runs.add(name, [model], directory, PAIRS, lora=LORA)
    return runs


def test_each_adapter_is_merged_once_though_layers_are_read_one_by_one(runs, monkeypatch):
    merged = []

    def counted(*matrices):
        merged.append(matrices)
        return merged_difference(*matrices)

    monkeypatch.setattr(weights, "merged_difference", counted)
    run = FinishedRun.open("dense", runs=runs.root / "runs", store=runs.store)
    checkpoints = run.model.path / "checkpoints"
    vocabulary = Vocabulary.load(run.vocabulary.path)
    load_model(checkpoints, vocabulary, longest=64, config=DecodeConfig(), device=torch.device("cpu"))
    assert len(merged) == len(weights.adapters_of(resolve(checkpoints))) > 0


@pytest.mark.parametrize("name", MODELS)
def test_base_and_adapters_are_the_merged_export(runs, name, tmp_path):
    def export(kind):
        return export_run(load_export([f"run={name}", f"out={tmp_path}/{kind}", f"format={kind}", *runs.overrides]))

    merged, out = load_file(export("huggingface") / "model.safetensors"), export("peft")
    assert {path.name for path in out.iterdir()} == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    settings = json.loads((out / "adapter_config.json").read_text())
    assert (settings["peft_type"], settings["task_type"], settings["bias"]) == ("LORA", "SEQ_2_SEQ_LM", "none")
    assert (settings["r"], settings["lora_alpha"], settings["lora_dropout"]) == (3, 5.0, 0.1)
    assert not settings["fan_in_fan_out"]
    matrices, weights = load_file(out / "adapter_model.safetensors"), dict(runs.models[name])
    for module in settings["target_modules"]:
        a, b = (matrices.pop(f"base_model.model.{module}.lora_{letter}.weight") for letter in "AB")
        weights[f"{module}.weight"] = weights[f"{module}.weight"] + 5.0 / 3 * b @ a
    assert not matrices
    own, cross, *dense = LINEARS[name]
    expected = {f"model.encoder.layers.0.{own}", f"model.decoder.layers.2.{cross}"}
    expected |= {f"model.{side}.layers.0.{linear}" for side in ("encoder", "decoder") for linear in dense}
    assert expected <= set(settings["target_modules"])
    dense_layers = 6 if name == "dense" else 4
    assert len(settings["target_modules"]) == 3 * 4 + 3 * 8 + 2 * dense_layers
    assert merged.keys() == weights.keys()
    for key, weight in weights.items():
        torch.testing.assert_close(merged[key], weight, rtol=1e-5, atol=1e-5, msg=key)
    changed = [key for key in weights if not torch.equal(merged[key], runs.models[name][key])]
    assert changed == [key for key in weights if key.removesuffix(".weight") in settings["target_modules"]]


@pytest.mark.parametrize("name", MODELS)
def test_peft_itself_loads_them(runs, name, tmp_path):
    install_or_skip(ROOT)
    exports = []
    for run, kind in ((f"{name}_base", "huggingface"), (name, "peft"), (name, "huggingface")):
        words = [f"run={run}", f"out={tmp_path}/{len(exports)}", f"format={kind}", *runs.overrides]
        exports.append(str(export_run(load_export(words))))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [str(ROOT / ".venv-bench/bin/python"), "-W", "ignore", "-m", "tests.peft_worker", *exports]
    process = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    differences = json.loads(process.stdout.splitlines()[-1])
    assert differences["merged"] < 1e-4
    assert differences["base"] > 0.1


def test_the_card_says_how_to_load_them_and_what_they_belong_to(runs, tmp_path):
    out = export_run(load_export(["run=wide", f"out={tmp_path}/out", "format=peft", *runs.overrides]))
    card = (out / "README.md").read_text()
    assert 'PeftModel.from_pretrained(model, ".")' in card
    assert "AutoModelForSeq2SeqLM.from_pretrained(BASE, trust_remote_code=True)" in card
    assert "library_name: peft" in card
    assert "format=huggingface, decode.average=1" in card


def test_adapters_of_a_trimmed_vocabulary_are_refused(runs, tmp_path):
    record = runs.root / "runs" / "dense" / "run.json"
    before = record.read_text()
    content = json.loads(before)
    content["config"]["vocab"]["trim"] = True
    record.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"format=peft: run dense trimmed its vocabulary .*; use format=huggingface"):
        export_run(load_export(["run=dense", f"out={tmp_path}/out", "format=peft", *runs.overrides]))
    record.write_text(before)
