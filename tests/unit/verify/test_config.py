"""The models of `make verify`: small, with capacities that fill, and the settings that a gate's file has."""

from pathlib import Path

import pytest
import torch

from pipeline.verify import config
from pipeline.verify.command import parse, verify


def model_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: str):
    (tmp_path / "mine.yaml").write_text(f"gate: {gate}\nencoder_gate: null\n")
    monkeypatch.setattr(config, "GATE_FILES", tmp_path)
    return config.model_of("mine").moe.gate


@pytest.mark.parametrize(
    ("gate", "factor"),
    [("{kind: top2, capacity_factor: 1.0}", config.FULL), ("{kind: noisy_topk, k: 2}", 0.0)],
)
def test_a_capacity_is_cut_where_the_file_has_one(tmp_path, monkeypatch, gate, factor):
    assert model_of(tmp_path, monkeypatch, gate).capacity_factor == factor


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_more_processes_than_gpus_are_refused_before_anything_runs():
    message = r"device=cuda with worlds=\[1, 2\]: torch finds 0 CUDA devices here, .*; leave out device=cuda"
    with pytest.raises(ValueError, match=message):
        verify(parse(["device=cuda", "worlds=[1,2]"]))


def test_a_kind_that_does_not_exist_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"top3.* does not exist"):
        model_of(tmp_path, monkeypatch, "{kind: top3}")
