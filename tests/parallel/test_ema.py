"""A moving average of the weights is saved by logical name, resumed bit for bit, and used to validate and decode."""

import json
from pathlib import Path

import pytest
import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.train.config import CheckpointConfig
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import assert_same_bits

DECAY = 0.5


@pytest.fixture(scope="module")
def averaged(run_job):
    keep = CheckpointConfig(every_n=1)
    return run_job(processes=2, ep=2, max_steps=4, ema=DECAY, validate_every=2, checkpoints=keep)


def test_it_is_the_average_of_the_weights_after_each_step(averaged):
    """The reference is computed from the weights in the checkpoints of all steps. One lerp rounds to 6e-8."""
    expected = {}
    for step in (1, 2, 3, 4):
        tensors = averaged.tensors(f"step-{step:08}")
        weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
        expected = {n: DECAY * expected[n] + (1 - DECAY) * t for n, t in weights.items()} if expected else weights
        for name, tensor in expected.items():
            torch.testing.assert_close(tensors[f"ema.{name}"], tensor, rtol=1e-6, atol=1e-7)
    assert not torch.equal(tensors["ema.encoder.norm.weight"], tensors["model.encoder.norm.weight"])


def test_it_changes_no_step_but_what_is_validated(kept_three, averaged):
    """The reference is a run without an average, of twice as many steps."""
    for actual, expected in zip(averaged.records("train"), kept_three.records("train")[:4], strict=True):
        assert actual["cross_entropy"] == expected["cross_entropy"]
    for actual, expected in zip(averaged.records("validation"), kept_three.records("validation")[:2], strict=True):
        assert actual["step"] == expected["step"]
        assert actual["cross_entropy"] != expected["cross_entropy"]


def test_it_resumes_bitwise_and_at_another_topology(run_job, averaged):
    settings = {"ema": DECAY, "validate_every": 2}
    first = run_job(processes=2, ep=2, max_steps=2, **settings)
    run_job(processes=2, ep=2, max_steps=4, into=first, **settings)
    assert_same_bits(first, averaged)
    other = run_job(processes=1, ep=1, max_steps=2, **settings, runtime={"zero_stage": 2})
    run_job(processes=2, ep=2, max_steps=4, into=other, **settings)
    for actual, expected in zip(other.records("validation"), averaged.records("validation"), strict=True):
        assert actual["cross_entropy"] == pytest.approx(
            expected["cross_entropy"], rel=1e-5
        )  # sums in another order in float32


def test_decoding_takes_it(prepared, averaged):
    vocabulary = Vocabulary.load(Path(prepared.vocabulary))
    config = DecodeConfig(beam=2, length_penalty=1.0)
    root = averaged.checkpoint().parent
    model = load_model(root, vocabulary, longest=20, config=config, device=torch.device("cpu"))
    tensors = averaged.tensors(json.loads((root / "best.json").read_text())["best"])
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, tensors[f"ema.{name}"]), name
