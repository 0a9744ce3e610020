"""The adapters of a run as files of the library peft, for the model that they were trained on, written without it.

R rank, M model, H hidden.
"""

import json
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from pipeline.decode.checkpoints import choose
from pipeline.decode.model import check_vocabulary
from pipeline.engine.checkpoint.weights import adapters_of, read_state, verify
from pipeline.export.command import Export
from pipeline.export.exportable import check_huggingface, has_experts
from pipeline.export.huggingface import own_program
from pipeline.export.names import their_name
from pipeline.export.weights import hidden_size
from pipeline.model.config import ModelConfig
from pipeline.model.lora import LoraConfig
from pipeline.schema import build
from pipeline.vocab.tokenizer import Vocabulary

PREFIX = "base_model.model."  # of the names of a model's modules in peft


def write_peft(export: Export, out: Path) -> None:
    """Write adapter_config.json, adapter_model.safetensors and a card. Raises ValueError for a run without adapters."""
    if export.extracted:
        raise ValueError(
            "PAIR: format=peft has the adapters of the whole model; leave PAIR out, or choose another format"
        )
    run, vocabulary = export.run, Vocabulary.load(export.run.vocabulary.path)
    if run.record()["config"]["vocab"].get("trim"):
        raise ValueError(
            f"format=peft: run {run.name} trimmed its vocabulary (vocab.trim), so its ids are not those of the model "
            "that its adapters belong to; use format=huggingface, which merges them"
        )
    directory, *more_directories = choose(run.model.path / "checkpoints", export.decode)
    if more_directories:
        raise ValueError(
            f"decode.average={export.decode.average}: the mean of several adapters has another rank; set "
            "decode.average=1, or use format=huggingface, which merges them"
        )
    state = read_state(directory)
    if not state.get("lora"):
        raise ValueError(f"format=peft: run {run.name} has no adapters (train.lora); use format=huggingface")
    config, lora = build(ModelConfig, state["model"]), build(LoraConfig, state["lora"])
    check_huggingface(config, shared=vocabulary.shared)
    check_vocabulary(directory, vocabulary)
    verify(directory)
    tensors: dict[str, Tensor] = {}
    for weight, (a, b) in adapters_of(directory).items():
        name = their_name(weight, sparse=has_experts(config)).removesuffix(".weight")
        lora_A, lora_B = a.flatten(0, -2).T, b.flatten(1).T
        if weight.endswith(".wi_MH"):  # the export of the model fills narrow networks up with zeros
            lora_B = F.pad(lora_B, (0, 0, 0, hidden_size(config) - len(lora_B)))
        if weight.endswith(".wo_HM"):
            lora_A = F.pad(lora_A, (0, hidden_size(config) - lora_A.shape[1]))
        tensors[f"{PREFIX}{name}.lora_A.weight"] = lora_A.contiguous()
        tensors[f"{PREFIX}{name}.lora_B.weight"] = lora_B.contiguous()
    settings = _settings(
        lora, [name.removeprefix(PREFIX).removesuffix(".lora_A.weight") for name in list(tensors)[::2]]
    )
    (out / "adapter_config.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    save_file(tensors, out / "adapter_model.safetensors", metadata={"format": "pt"})
    (out / "adapter_model.safetensors").chmod(0o644)
    code = own_program(export, vocabulary, sparse=has_experts(config))
    note = (
        "These are its adapters alone. They belong to the model that train.initialize_from names in run.json: to the "
        "export (format=huggingface, decode.average=1) of that run, or to the checkpoint of that path."
    )
    (out / "README.md").write_text(export.card(None, library="peft", note=note, code=code), encoding="utf-8")


def _settings(lora: LoraConfig, modules: list[str]) -> dict[str, Any]:
    """Return the content of adapter_config.json. modules: full names, because experts have linears of equal ends."""
    return {
        "peft_type": "LORA",
        "task_type": "SEQ_2_SEQ_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": modules,
        "bias": "none",
        "fan_in_fan_out": False,
        "modules_to_save": None,
    }
