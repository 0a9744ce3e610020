"""The weights of a checkpoint of transformers as a checkpoint of ours. Tensors are read and written a few at a time."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import MetadataIndex

from pipeline.checked_json import dump_checked
from pipeline.engine.checkpoint.names import RESUME_SHARDS, STATE, WEIGHTS
from pipeline.engine.checkpoint.shard_writer import write_shard
from pipeline.engine.checkpoint.weights import FORMAT
from pipeline.export.names import SHARED, TIED, from_theirs, their_name
from pipeline.imports.checkpoint import LARGEST, Checkpoint, Tensors, read, shape_of
from pipeline.model.config import ModelConfig
from pipeline.parallel.shapes import FLOAT, Shape, parameter_shapes
from pipeline.train.retention import MARKS

NAME = "step-00000000"
SHARD_BYTES = 256 << 20  # of a shard, unless one tensor is larger
_COMPUTED = ("embed_positions.weights",)  # ends of names of tensors that are no parameters


def vocabulary_size(checkpoint: Checkpoint) -> int:
    """Return the rows of the embedding. Raises ValueError if it is not there, or impossibly large."""
    with checkpoint.opened() as tensors:
        if SHARED not in tensors:
            raise checkpoint.error(f"its weights lack {SHARED}; it is no whole M2M100 or NLLB-MoE")
        rows = shape_of(tensors, SHARED)[0]
    if rows > LARGEST:
        raise checkpoint.error(f"{SHARED} has {rows} rows; import reads {LARGEST} at most")
    return rows


def check_weights(checkpoint: Checkpoint, config: ModelConfig, vocabulary: int) -> None:
    """Raise ValueError if the weights are not exactly those of the model, or the embeddings are not tied."""
    with checkpoint.opened() as tensors:
        layers = config.encoder_layers + config.decoder_layers
        num_parts = layers + layers // config.moe.every * config.moe.num_experts
        if num_parts > len(tensors):  # before they are listed, which would take all memory
            raise checkpoint.error(
                f"config.json asks for {num_parts} layers and experts, and its weights have {len(tensors)} tensors"
            )
        expected = _their_shapes(config, vocabulary)
        for name, shape in expected.items():
            if name not in tensors:
                raise checkpoint.error(f"its weights lack {name}, which config.json asks for")
            if (there := shape_of(tensors, name)) != shape:
                raise checkpoint.error(f"{name} is {list(there)}, and {list(shape)} by config.json")
        for name in tensors:
            if name not in expected and name not in TIED and not name.endswith(_COMPUTED):
                raise checkpoint.error(f"its weights have {name}, which our model has no place for")
        for name in TIED:
            if name in tensors and not _same(tensors, name, SHARED):
                raise checkpoint.error(f"{name} differs from {SHARED}, and our model has one embedding for both")


def write_checkpoint(checkpoint: Checkpoint, config: ModelConfig, vocabulary: int, sha256: str, out: Path) -> None:
    """Write a directory of checkpoints with one. The files of the source are opened anew for each shard.

    sha256: of the vocabulary. At most one shard, and the part of the source that it came from, is in memory.
    """
    directory = out / NAME
    directory.mkdir(parents=True, exist_ok=True)
    sparse, shards = bool(config.moe_layers()), {}
    for number, group in enumerate(_groups(_shapes(config, vocabulary)), start=1):
        with checkpoint.opened() as tensors:
            parts = {MetadataIndex(f"model.{shape.name}"): _parameter(tensors, shape, sparse=sparse) for shape in group}
            file = f"{WEIGHTS}-{number:05}.safetensors"
            shards[file] = write_shard(directory / file, parts)
            del parts
    model = config.to_json()
    state = {"format": FORMAT, "model": model, "vocabulary": sha256, "shards": shards, RESUME_SHARDS: {}}
    (directory / STATE).write_text(dump_checked(state), encoding="utf-8")
    (out / MARKS).write_text(json.dumps({"best": NAME, "last": NAME, "best_k": [NAME], "last_n": [NAME]}))


def _shapes(config: ModelConfig, vocabulary: int) -> list[Shape]:
    return parameter_shapes(config, source_vocabulary=vocabulary, target_vocabulary=vocabulary, shared=True)


def _their_shapes(config: ModelConfig, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the tensors of transformers must have, by name."""
    from pipeline.export.names import to_theirs

    sparse, shapes = bool(config.moe_layers()), {}
    for shape in _shapes(config, vocabulary):
        sizes = shape.sizes[1:] if shape.expert else shape.sizes
        their_shape = tuple(to_theirs(shape.name, torch.empty(sizes, device="meta")).shape)
        for expert in range(shape.sizes[0] if shape.expert else 1):
            shapes[their_name(shape.name, sparse=sparse).format(expert=expert)] = their_shape
    return shapes


def _groups(shapes: Sequence[Shape]) -> Iterator[list[Shape]]:
    """Cut a list where SHARD_BYTES are reached."""
    group: list[Shape] = []
    for shape in shapes:
        if group and FLOAT * sum(other.elements for other in [*group, shape]) > SHARD_BYTES:
            yield group
            group = []
        group.append(shape)
    yield group


def _parameter(tensors: Tensors, shape: Shape, *, sparse: bool) -> Tensor:
    name = their_name(shape.name, sparse=sparse)
    if not shape.expert:
        return from_theirs(shape.name, read(tensors, name), shape.sizes)
    whole = torch.empty(shape.sizes)
    for expert, part in enumerate(whole):
        part.copy_(from_theirs(shape.name, read(tensors, name.format(expert=expert)), shape.sizes[1:]))
    return whole


def _same(tensors: Tensors, name: str, other: str) -> bool:
    if shape_of(tensors, name) != shape_of(tensors, other):
        return False
    a, b = tensors[name], tensors[other]
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.data_ptr() == b.data_ptr():
        return True
    rows = range(0, shape_of(tensors, name)[0], 4096)
    return all(torch.equal(a[row : row + 4096], b[row : row + 4096]) for row in rows)
