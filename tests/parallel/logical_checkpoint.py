"""Write the checkpoint of an untrained model, like two processes that have half of the experts each."""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from pipeline.engine.checkpoint.shard_writer import write_shard
from pipeline.engine.checkpoint.weights import FORMAT, STATE
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from pipeline.parallel.partition import expert_parameters
from pipeline.vocab.tokenizer import Vocabulary

FILES = 2


def sharpen(model: Transformer) -> None:
    """Scale up random layers, so that they decide the translation, and not the last token."""
    with torch.no_grad():
        for stack in (model.encoder, model.decoder):
            for parameter in stack.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(4.0)


def write_checkpoints(root: Path, config, vocabulary: Vocabulary) -> Path:
    """Write checkpoints below `root`, like training. Return their directory."""
    model = Transformer(
        config,
        source_vocabulary=vocabulary.source_size,
        target_vocabulary=vocabulary.target_size,
        shared=vocabulary.shared,
        max_positions=8,
    )
    initialize(model, 1)
    sharpen(model)
    experts, directory = expert_parameters(model), root / "checkpoints" / "step-00000001"
    directory.mkdir(parents=True)
    shards = {}
    for file in range(FILES):
        parts = {}
        for number, (name, parameter) in enumerate(model.named_parameters()):
            if name in experts:
                part = parameter.detach().chunk(FILES)[file]
                offset = [file * len(part), *[0] * (part.dim() - 1)]
                parts[MetadataIndex(f"model.{name}", torch.Size(offset))] = part
            elif number % FILES == file:
                parts[MetadataIndex(f"model.{name}", torch.Size([0] * parameter.dim()))] = parameter
        shard = directory / f"shard-{file + 1:05}.safetensors"
        shards[shard.name] = write_shard(shard, parts)
    state = {"format": FORMAT, "model": asdict(config), "shards": shards}
    (directory / STATE).write_text(json.dumps(state))
    (directory.parent / "best.json").write_text(json.dumps({"best": directory.name}))
    return directory.parent
