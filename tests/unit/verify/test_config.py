"""The models of `make verify`: small, with capacities that fill, and the settings that a gate's file has."""

from pathlib import Path

import pytest

from pipeline.verify import config


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


def test_a_kind_that_does_not_exist_is_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"top3.* does not exist"):
        model_of(tmp_path, monkeypatch, "{kind: top3}")
