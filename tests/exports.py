"""Finished runs of random models, to export, and the environments that exported models are read in."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from pipeline.corpus.languages import LangPair
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.engine.checkpoint.shard_writer import write_shard
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.lora import LoraConfig
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import BOS, EOS, PAD
from pipeline.vocab.tokenizer import Vocabulary

DECODE = DecodeConfig(beam=4, length_penalty=1.0, length_norm="power", max_length_ratio=0.0, max_length_extra=14)
V4, V5 = ".venv-bench", ".venv-transformers5"  # environments of bench/setup.sh
SHAPES = [{"rows": 4, "source": 256, "target": 96}]


def install_or_skip(root: Path, **settings: str) -> None:
    """Make the environments of `bench/setup.sh export` below a checkout. Skips where pip reaches no package index.

    settings: environment variables for pip.
    """
    environment = {**os.environ, **settings}
    if subprocess.run([root / "bench/setup.sh", "export"], env=environment).returncode == 0:
        return
    ask = [root / ".venv/bin/python", "-m", "pip", "index", "versions", "transformers"]
    answer = subprocess.run(ask, env=environment, capture_output=True, text=True)
    if answer.returncode != 0:
        pytest.skip(f"transformers and CTranslate2 are not installed, and no index has them: {answer.stderr.strip()}")
    pytest.fail("bench/setup.sh export fails although pip reaches a package index")


def config_of(**changes: Any) -> ModelConfig:
    sizes = {"dim": 32, "ffn_dim": 48, "heads": 4, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.1}
    return ModelConfig(**{**sizes, "moe": MoEConfig(), **changes})


def random_model(config: ModelConfig, vocabulary: Vocabulary, seed: int = 1) -> Transformer:
    """With translations of its own for every source: layers that outweigh the embeddings, which are also the output."""
    model = Transformer(
        config,
        source_vocabulary=vocabulary.source_size,
        target_vocabulary=vocabulary.target_size,
        shared=vocabulary.shared,
        max_positions=320,
    )
    initialize(model, seed)
    # biases have a generator of their own, so that weights do not depend on them
    generator, of_biases = (torch.Generator().manual_seed(seed + number) for number in (0, 1000))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # no parameter is one or zero, so that each has to be in its place
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
            elif "embedding" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
            elif name.rpartition(".")[2].startswith("b"):
                parameter.copy_(torch.randn(parameter.shape, generator=of_biases) * 0.05)
            else:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 2 / config.dim**0.5)
        model.decoder.norm.weight.mul_(5)  # sharp
        # as after training, which no target has them in: CTranslate2 takes them out before a softmax, we after it
        model.target_embedding_VM[[BOS, PAD]] = 0
        model.target_embedding_VM[EOS].mul_(1.7)  # translations end
    return model.eval()


class Runs:
    """runs/ and artifacts/ below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root / "artifacts")

    @property
    def overrides(self) -> list[str]:
        return [f"runtime.runs={self.root}/runs", f"runtime.artifacts={self.root}/artifacts"]

    def add(
        self,
        name: str,
        models: Sequence[Transformer],
        vocabulary: Path,
        pairs: Sequence[LangPair],
        *,
        lora: LoraConfig | None = None,
        **decode: Any,
    ) -> None:
        """A finished run; its checkpoints are the models, the best first. lora: of their adapters, if they have any."""
        (trained,) = {model.config for model in models}
        shared = self._publish("vocab", name, lambda out: shutil.copytree(vocabulary, out, dirs_exist_ok=True))
        model = self._publish("train", name, lambda out: _write_checkpoints(out / "checkpoints", models, lora))
        system = {
            "artifacts": {"model": f"train/{model}", "vocabulary": f"vocab/{shared}"},
            "size": "tiny",
            "parameters": 12345,
            "active_parameters": 2345,
            "tokens": 1000,
            "steps": 10,
        }
        source = {"name": "sample", "licence": "MPL-2.0", "citation": "Those who\nwrote | it", "kept": 400}
        record = {
            "name": name,
            "recipe": "random",
            "commit": "c0ffee",
            "languages": {pair.name: {"source": pair.src, "target": pair.tgt} for pair in pairs},
            "corpus": {"title": "The sample"},
            "sources": {pair.name: [source] for pair in pairs},
            "systems": {"moe": [system]},
            "config": {
                "model": trained.to_json(),
                "vocab": {"shared": (vocabulary / "shared.model").exists()},
                "decode": {**asdict(DECODE), **decode},
                "batch": {"shapes": SHAPES, "groups_per_step": 2, "mixture": {}},
                "runtime": {"artifacts": "artifacts"},
            },
        }
        directory = self.root / "runs" / name
        directory.mkdir(parents=True)
        (directory / "run.json").write_text(json.dumps(record))
        (directory / "scores.csv").write_text(SCORES)

    def _publish(self, stage: str, name: str, fill: Any) -> str:
        return self.store.get(Stage(name=stage, version=1, config={"name": name}, inputs={}, run=fill)).key


SCORES = """pair,system,train_pairs,metric,score,ci_low,ci_high,n_test,signature
ja-en,bilingual,400,bleu,9.0,8.0,10.0,300,nrefs:1|case:mixed|tok:13a
ja-en,moe,400,bleu,12.3,11.1,13.2,300,nrefs:1|case:mixed|tok:13a
"""


def _write_checkpoints(root: Path, models: Sequence[Transformer], lora: LoraConfig | None) -> None:
    names = [f"step-{number:08d}" for number in range(1, len(models) + 1)]
    for name, model in zip(names, models, strict=True):
        (root / name).mkdir(parents=True)
        write_checkpoint(root / name, model, lora)
    (root / "best.json").write_text(json.dumps({"best": names[0], "last_n": names}))


def write_checkpoint(directory: Path, model: Transformer, lora: LoraConfig | None = None) -> None:
    tensors: Mapping[Any, Any] = {MetadataIndex(f"model.{name}"): value for name, value in model.named_parameters()}
    shards = {"shard-00001.safetensors": write_shard(directory / "shard-00001.safetensors", tensors)}
    state = {"format": 1, "model": model.config.to_json(), "shards": shards, **({"lora": asdict(lora)} if lora else {})}
    (directory / "state.json").write_text(json.dumps(state))
