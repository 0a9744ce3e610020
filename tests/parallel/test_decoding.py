"""Decoding by real processes: translations depend neither on batches nor on who decodes them, and nobody hangs."""

import json
from pathlib import Path

import pytest

from pipeline.parallel.launch import launch
from pipeline.stage import Stopped

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("processes", "ep"),
    [(2, 2), pytest.param(4, 4, marks=pytest.mark.long), pytest.param(4, 2, marks=pytest.mark.long)],
)
def test_processes_that_share_experts_translate_as_one_does(tmp_path, monkeypatch, processes, ep):
    """Any batches, also fewer than processes; they end together, by a stop asked of one."""
    monkeypatch.chdir(ROOT)
    worker = "tests.parallel.decoding_worker"
    with pytest.raises(Stopped):
        launch(worker, {"ep": ep}, directory=tmp_path, processes=processes, threads=1, title="decoding")
    found = json.loads((tmp_path / "found.json").read_text())
    for name, seen in found.items():
        assert seen["other"] == seen["routed elsewhere"] == [], name
        assert seen["score"] < (1e-4 if name == "float32" else 1e-12), name
        assert seen["asked"] == seen["served"] > 500, name
    assert found["one batch"]["idle"] == processes - 1
    assert found["one in a batch"]["idle"] == 0
