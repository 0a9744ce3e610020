"""Placement of experts while a model translates: the counted bytes are those allocated, and all processes agree."""

import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.config import load_config
from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.placement import Demand, free_bytes, must_cut
from pipeline.decode.quantization import is_rounded
from pipeline.decode.search.search import max_length
from pipeline.jobs.device import Place
from pipeline.jobs.rendezvous import World
from tests.unit.model.test_transformer import built, small

ROOT = Path(__file__).resolve().parents[4]
HERE = Place(rank=0, world=1, on_host=2, device=torch.device("cpu"))
SMALL = Demand(dense=60_000_000, experts=400_000_000, batch=150_000_000)


@pytest.fixture(scope="module")
def runtime():
    return load_config([]).runtime


@pytest.fixture
def world(tmp_path):
    return World.meet(init_method=f"file://{tmp_path}/store", rank=0, size=1, timeout=10)


def decoding(**changes):
    return DecodeConfig(beam=4, length_penalty=1.0, **changes)


def test_weights_are_counted_as_they_are_loaded():
    model = built(small(num_experts=4))
    demand = Demand.of(model, decoding())
    moe = sum(p.nbytes for layer in model.moe_layers().values() for p in layer.experts.parameters())
    assert demand.experts == moe > 0
    assert demand.dense + demand.experts == sum(p.nbytes for p in model.parameters())
    assert Demand.of(model.double(), decoding(precision="fp64")).dense == 2 * demand.dense


def test_what_is_read_before_it_is_averaged_or_rounded_is_one_layer():
    """4 layers, of which the second of each stack has experts. Embeddings and final norms are read together."""
    model = built(small(num_experts=4))
    demand, averaged = Demand.of(model, decoding()), Demand.of(model, decoding(average=2))
    layer = model.decoder.layers[1]
    experts = sum(p.nbytes for p in layer.feed_forward.experts.parameters())
    whole = sum(p.nbytes for p in layer.parameters())
    assert averaged.experts == demand.experts + experts
    assert averaged.dense == demand.dense + whole - experts
    rounded = Demand.of(model, decoding(precision="int8"))
    matrices = {name: p.nbytes for name, p in model.named_parameters() if is_rounded(name)}
    table = model.target_embedding_VM.numel()
    assert rounded.experts == demand.experts // 4 + experts
    saved = sum(num_bytes * 3 // 4 for num_bytes in matrices.values())
    assert rounded.dense + rounded.experts == demand.dense + demand.experts - saved + table + whole


@pytest.mark.parametrize(("batch_tokens", "longest"), [(600, 0), (600, 400)])
def test_no_batch_takes_more_than_is_counted(batch_tokens, longest):
    """Batches of sentences of any length need the keys and values of every layer, and the logits twice."""
    model, settings = built(small()), decoding(batch_tokens=batch_tokens)
    counted = Demand.of(model, settings, longest=longest).batch
    needs = []
    for length in {*range(3, batch_tokens // 4 + 1), longest or 3}:
        sentences = max(batch_tokens // (length * 4), 1)
        positions = 4 * sentences * max_length(length, settings) + sentences * length
        needs.append(4 * (2 * 4 * 16 * positions + 2 * 50 * 4 * sentences))  # float32, 4 layers, M = 16, V = 50
    assert max(needs) <= counted <= 2.5 * max(needs)


def test_what_fits_is_whole_and_what_does_not_is_cut(runtime, world, caplog):
    """The log lines are those of docs/clusters.md, except for the free memory."""
    cut_over_two = replace(runtime, decode_experts="sharded")
    huge = replace(SMALL, experts=10 * free_bytes(HERE.device))
    with caplog.at_level(logging.INFO):
        assert not must_cut(SMALL, runtime, HERE, world)
        assert must_cut(huge, runtime, HERE, world)
        assert must_cut(SMALL, cut_over_two, HERE, world)
    whole, _, cut = (re.sub(r"of [\d.]+ GB free", "of 24.1 GB free", message) for message in caplog.messages)
    assert f"{whole}\n{cut}" in (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
