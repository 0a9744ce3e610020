"""A model with random weights and the vocabulary of the sample, also as files that training writes."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from pipeline.config import load_config
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.calls import TranslatorSpec
from pipeline.decode.job.workers import TranslatorPool
from pipeline.engine.checkpoint.shard_writer import write_shard
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from pipeline.vocab.tokenizer import Vocabulary
from tests.unit.model.test_transformer import small

DECODE = DecodeConfig(beam=2, length_penalty=1.0, max_length_ratio=1.0, max_length_extra=4)


@pytest.fixture(scope="session")
def vocabulary(prepared):
    return Vocabulary.load(Path(prepared.vocabulary))


@pytest.fixture(scope="session")
def model(vocabulary):
    """Return a model with sharp outputs, so that translations differ."""
    torch.manual_seed(0)
    sizes = {"source_vocabulary": vocabulary.source_size, "target_vocabulary": vocabulary.target_size}
    model = Transformer(small(decoder_layers=2), **sizes, shared=False, max_positions=8)
    initialize(model, 1)
    with torch.no_grad():
        model.target_embedding_VM.mul_(3.0)
    return model.eval()


def write_checkpoint(root, model, **state):
    directory = root / "step-00000001"
    directory.mkdir(parents=True)
    tensors = {MetadataIndex(f"model.{name}"): tensor for name, tensor in model.named_parameters()}
    shards = {"shard-00001.safetensors": write_shard(directory / "shard-00001.safetensors", tensors)}
    values = {"format": 1, "model": asdict(model.config), **state, "shards": shards}
    (directory / "state.json").write_text(json.dumps(values))
    (root / "best.json").write_text(json.dumps({"best": directory.name}))
    return root


@pytest.fixture(scope="session")
def spec(model, vocabulary, prepared, tmp_path_factory):
    root = tmp_path_factory.mktemp("random")
    return TranslatorSpec(
        checkpoints=str(write_checkpoint(root / "checkpoints", model, vocabulary=vocabulary.sha256)),
        vocabulary=prepared.vocabulary,
        decode=DECODE,
        max_source_tokens=24,
    )


@pytest.fixture(scope="package", params=[1, 2], ids=["whole models", "shared experts"])
def pool(spec, request):
    """Two processes: each has the whole model, or they share its experts."""
    with TranslatorPool(spec, load_config(["runtime.device=cpu", f"runtime.ep={request.param}"]).runtime) as pool:
        yield pool
