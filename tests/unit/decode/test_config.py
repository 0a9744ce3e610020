"""Settings of decoding: errors name the remedy, and a stage's key has the settings that matter."""

from dataclasses import fields, replace

import pytest

from pipeline.config import load_config
from pipeline.decode.config import SPEED_ONLY, DecodeConfig

PLAIN = DecodeConfig(beam=4, length_penalty=1.0)
MISTAKES = [
    ({"search": "bean"}, "search='bean' is not one of beam, sample"),
    ({"beam": 0}, "beam=0 must be at least 1"),
    ({"n_best": 0}, "n_best=0 must be at least 1"),
    ({"n_best": 5}, "n_best=5 hypotheses need decode.beam=5 or more"),
    ({"length_penalty": -0.1}, "length_penalty=-0.1 must not be negative"),
    ({"length_penalty": float("nan")}, "length_penalty=nan must be a finite number"),
    ({"length_norm": "wu"}, "length_norm='wu' is not one of gnmt, power"),
    ({"coverage_penalty": -1.0}, "coverage_penalty=-1.0 must not be negative"),
    ({"max_length_ratio": -1.0}, "max_length_ratio=-1.0 must not be negative"),
    ({"max_length_extra": 0}, "max_length_extra=0 must be at least 1"),
    ({"min_length": -1}, "min_length=-1 must not be negative"),
    ({"max_length_ratio": 0.0, "min_length": 16}, "min_length=16 leaves no room for </s> within .*extra=16; lower"),
    ({"no_repeat_ngram": -1}, "no_repeat_ngram=-1 must not be negative"),
    (
        {"search": "sample", "temperature": 0.0},
        "temperature=0.0 must be at least 0.001; for the likeliest token take decode.top_k=1",
    ),
    ({"search": "sample", "temperature": 1e-45}, "temperature=1e-45 must be at least 0.001"),
    ({"temperature": 0.5}, "temperature=0.5 is of sampling; set decode.search=sample, or leave it 1.0"),
    ({"search": "sample", "top_k": -1}, "top_k=-1 must not be negative"),
    ({"top_k": 5}, "top_k=5 is of sampling; set decode.search=sample, or leave it 0"),
    ({"search": "sample", "top_p": 0.0}, r"top_p=0.0 must lie in \(0, 1\]; 1 keeps all tokens"),
    ({"search": "sample", "top_p": 1.5}, r"top_p=1.5 must lie in \(0, 1\]"),
    ({"top_p": 0.9}, "top_p=0.9 is of sampling"),
    ({"seed": -1}, "seed=-1 must not be negative"),
    ({"seed": 1 << 63}, r"seed=9223372036854775808 must be below 2\^63"),
    ({"precision": "fp16"}, "precision='fp16' is not one of fp32, bf16, fp64"),
    ({"capacity_factor": -1.0}, "capacity_factor=-1.0 must not be negative"),
    ({"batch_tokens": 0}, "batch_tokens=0 must be at least 1"),
    ({"beam_memory": "flat"}, "beam_memory='flat' is not one of flattened, reordered"),
    ({"average": 0}, "average=0 must be at least 1"),
    ({"average_of": "first"}, "average_of='first' is not one of last, best"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_mistakes_are_named_with_their_remedy(changes, message):
    with pytest.raises(ValueError, match=f"decode.{message}"):
        replace(PLAIN, **changes)


def test_every_field_has_a_mistake():
    assert {name for changes, _ in MISTAKES for name in changes} == {field.name for field in fields(DecodeConfig)}


def test_a_sample_needs_no_beam():
    assert replace(PLAIN, search="sample", n_best=9).hypotheses == 9
    assert PLAIN.hypotheses == 4


def test_a_key_has_what_changes_translations():
    """With a capacity, batches change translations. In bf16, everything that changes the rounding of sums does."""
    names = {field.name for field in fields(DecodeConfig)}
    assert PLAIN.decisive().keys() == names - set(SPEED_ONLY)
    assert replace(PLAIN, capacity_factor=1.0).decisive().keys() == names - {"beam_memory"}
    assert replace(PLAIN, precision="fp64").decisive().keys() == names - set(SPEED_ONLY)
    assert replace(PLAIN, precision="bf16").decisive().keys() == names


@pytest.mark.parametrize("gate", ["dropless", "balanced"])
def test_a_capacity_where_no_token_queues_is_refused_before_a_run(gate):
    with pytest.raises(ValueError, match=rf"decode.capacity_factor=1.0: .* model.moe.gate={gate}, .* set it to 0"):
        load_config([f"gate={gate}", "decode.capacity_factor=1"])
