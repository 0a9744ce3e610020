"""Weights in parts, in several files, are read whole or in other parts."""

import hashlib
import json

import pytest
import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from pipeline.engine.checkpoint.shard_writer import write_shard
from pipeline.engine.checkpoint.weights import load_weights, read_parts, shapes_of, verify
from tests.unit.model.test_transformer import built, small

WEIGHTS = {"experts": torch.arange(60.0).view(6, 5, 2), "norm": torch.arange(3.0)}


@pytest.fixture(params=["model", "ema"])
def checkpoint(tmp_path, request):
    """Write a checkpoint like three processes that have two of six experts each."""
    shards = {}
    for file in range(3):
        parts = {
            MetadataIndex(f"{request.param}.experts", torch.Size([2 * file, 0, 0])): WEIGHTS["experts"].chunk(3)[file]
        }
        if file == 1:
            parts[MetadataIndex(f"{request.param}.norm", torch.Size([0]))] = WEIGHTS["norm"]
            parts[MetadataIndex("moment.norm", torch.Size([0]))] = -WEIGHTS["norm"]
        name = f"shard-{file + 1:05}.safetensors"
        shards[name] = write_shard(tmp_path / name, parts)
    state = {"format": 1, "ema": request.param == "ema", "shards": shards}
    (tmp_path / "state.json").write_text(json.dumps(state))
    return tmp_path


def read_whole(checkpoint, shapes):
    tensors = {name: torch.full(shape, torch.nan) for name, shape in shapes.items()}
    read_parts(checkpoint, tensors, {})
    return tensors


def test_whole_weights_are_put_together(checkpoint):
    shapes = shapes_of(checkpoint)
    assert shapes == {name: tuple(tensor.shape) for name, tensor in WEIGHTS.items()}
    tensors = read_whole(checkpoint, shapes)
    assert all(torch.equal(tensors[name], WEIGHTS[name]) for name in WEIGHTS)


@pytest.mark.parametrize(("first", "size"), [(0, 2), (1, 4), (3, 3), (5, 1)])
def test_a_part_is_read_by_itself(checkpoint, first, size):
    part = torch.full((size, 5, 2), torch.nan)
    read_parts(checkpoint, {"experts": part}, {"experts": (first,)})
    assert torch.equal(part, WEIGHTS["experts"][first : first + size])


def test_parts_that_are_cut_on_several_dimensions_and_take_the_weights_of_another(checkpoint):
    into = {"one": torch.full((2, 3, 2), torch.nan), "two": torch.full((6, 5, 1), torch.nan)}
    read_parts(checkpoint, into, {"one": (3, 1), "two": (0, 0, 1)}, dict.fromkeys(into, "experts"))
    assert torch.equal(into["one"], WEIGHTS["experts"][3:5, 1:4])
    assert torch.equal(into["two"], WEIGHTS["experts"][:, :, 1:])


def test_a_layer_is_converted_before_the_next_one_is_read(tmp_path):
    """So that a model never needs the memory of all its layers as they are in the file."""
    model = built(small(num_experts=4))
    parts = {
        MetadataIndex(f"model.{name}", torch.Size([0] * p.dim())): p.detach().clone()
        for name, p in model.named_parameters()
    }
    (tmp_path / "state.json").write_text(
        json.dumps({"format": 1, "shards": {"shard-00001": write_shard(tmp_path / "shard-00001", parts)}})
    )
    layers = [*model.encoder.layers, *model.decoder.layers]
    for parameter in model.parameters():
        parameter.data.fill_(torch.nan)

    def convert(layer):
        read = [all(p.isfinite().all() for p in one.parameters()) for one in layers]
        assert read == [place <= layers.index(layer) for place in range(len(layers))]
        converted.append(layer)
        layer.bfloat16()

    converted = []
    load_weights([tmp_path], model, convert=convert)
    assert converted == layers
    assert all(p.isfinite().all() for p in model.parameters())
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16, torch.float32}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"experts": (7, 5, 2)}, "does not hold experts as the model has it"),
        ({"bias": (3,)}, "does not hold bias as"),
        ({"norm": (3, 1)}, "norm has 1 dimensions, the model's 2"),
    ],
)
def test_a_model_that_it_does_not_fill_is_refused(checkpoint, shapes, message):
    with pytest.raises(ValueError, match=message):
        read_whole(checkpoint, shapes)


def test_a_damaged_file_is_refused(checkpoint):
    shard = checkpoint / "shard-00002.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert hashlib.sha256(content).hexdigest() not in (checkpoint / "state.json").read_text()
    with pytest.raises(ValueError, match=r"is damaged: shard-00002.safetensors is missing or differs"):
        read_whole(checkpoint, {"norm": (3,)})


def test_only_training_is_stopped_by_a_damaged_file_that_only_training_reads(checkpoint):
    moments = {MetadataIndex("moment.norm", torch.Size([0])): -WEIGHTS["norm"]}
    resumed = {"resume-00001.safetensors": write_shard(checkpoint / "resume-00001.safetensors", moments)}
    state = json.loads((checkpoint / "state.json").read_text())
    (checkpoint / "state.json").write_text(json.dumps({**state, "resume_shards": resumed}))
    verify(checkpoint, whole=True)
    for shard in checkpoint.glob("resume-*"):
        shard.write_bytes(b"damaged")
    read_whole(checkpoint, shapes_of(checkpoint))
    verify(checkpoint)
    with pytest.raises(ValueError, match=r"is damaged: resume-00001.safetensors is missing or differs"):
        verify(checkpoint, whole=True)
