"""Every gate gives equal results on two processes and on one, and training records the work of routers."""

import re

import numpy as np
import pytest

from pipeline.model.config import ConditionalConfig, MoEConfig
from pipeline.model.moe.gates.config import Top2Config
from tests.conftest import ROOT
from tests.gates import GATES, moe_of
from tests.parallel.conftest import run_worker


def test_every_gate_equals_the_single_process(tmp_path):
    """Loss, usage and gradients agree in float64, with experts cut over two processes and an empty group."""
    assert run_worker("gates_worker.py", tmp_path).split()[-len(GATES) :] == GATES


def test_training_records_every_layer_and_the_usage_of_every_pair(run_job):
    moe = moe_of("expert_choice", z_weight=1e-3, output_masking=0.2, conditional={"budget": 0.8})
    outcome = run_job(processes=2, ep=2, max_steps=3, moe=moe, validate_every=2)
    records = outcome.records("train")
    documented = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "records.md").read_text()))
    for record in records:
        assert record.keys() <= documented | {"event"}
        assert list(record["layers"]) == ["encoder.2", "decoder.2"]
        for layer in record["layers"].values():
            assert 0 <= layer["drop_rate"] <= layer["unserved"] + 1
            assert 0 < layer["entropy"] <= np.log(4) + 1e-6
            assert 0 <= layer["load_min"] <= 1 <= layer["load_max"] <= 4
            assert layer["z"] > 0
            assert 0 <= layer["budget"] <= 0.8
        assert record["layers"]["decoder.2"]["balance"] == pytest.approx(1.0, abs=0.5)
        assert "balance" not in record["layers"]["encoder.2"]
        decoder, encoder = record["layers"]["decoder.2"], record["layers"]["encoder.2"]
        expected = 0.01 * decoder["balance"] + sum(1e-3 * x["z"] + 0.01 * x["budget"] for x in (decoder, encoder))
        assert record["aux_loss"] == pytest.approx(expected, rel=1e-5)
        assert set(record["pairs"]) <= {"ja-en", "tr-en"}
        assert min(record["pairs"].values()) <= record["cross_entropy"] <= max(record["pairs"].values())
        assert 0 < record["data_wait"] < 1
        assert 1e8 < record["memory"] < 1e10  # torch alone takes more than the smaller bound
        assert record["memory_source"] == "process"
        assert 0 < record["padding"] < 1
    assert list((outcome.directory / "log" / "tensorboard").glob("events.out.tfevents.*"))
    with np.load(outcome.directory / "log" / "routing.npz") as usage:
        assert usage["layers"].tolist() == ["encoder.2", "decoder.2"]
        assert usage["pairs"].tolist() == ["ja-en", "tr-en"]
        assert usage["train"].shape == usage["dev"].shape == (2, 2, 4)
        assert (usage["dev"].sum(axis=2) > 0).all()
        assert (usage["train"][1].sum(axis=1) > 0).all()


def test_training_stops_where_the_auxiliary_loss_has_no_gradient(run_job):
    """A weight that is too small for float32 has no effect, which is an error."""
    moe = MoEConfig(num_experts=4, expert_dim=32, gate=Top2Config(balance_weight=1e-45))
    with pytest.raises(Exception, match=r"auxiliary loss of layer encoder\.2, decoder\.2 gives its router no gradient"):
        run_job(processes=1, ep=1, max_steps=2, moe=moe)


def test_the_gate_to_the_shared_network_is_checked_too(run_job):
    conditional = ConditionalConfig(weight=1e-45)
    moe = MoEConfig(num_experts=4, expert_dim=32, conditional=conditional)
    with pytest.raises(Exception, match="gives its router no gradient"):
        run_job(processes=1, ep=1, max_steps=2, moe=moe)
