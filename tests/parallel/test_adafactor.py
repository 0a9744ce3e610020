"""Adafactor on ZeRO's flat partitions is Adafactor on whole matrices, and resumes on any topology."""

import shutil

import pytest
import torch

from pipeline.train.config import CheckpointConfig
from pipeline.train.schedule import ScheduleConfig
from pipeline.verify.command import verify
from pipeline.verify.config import VerifyConfig
from tests.parallel.conftest import Outcome

SETTINGS = {
    "optimizer": "adafactor",
    "learning_rate": 0.01,
    "warmup_steps": 0,
    "schedule": ScheduleConfig(kind="warmup_hold_inverse_square_root", hold_steps=2),
    "max_steps": 4,
    "clip_norm": 0.0,
    "ema": 0.5,
}


@pytest.mark.parametrize(
    ("worlds", "groups", "gates", "steps"),
    [
        ([3], 3, ["top2"], 3),
        pytest.param([1, 2, 3, 4, 6], 12, ["top2", "hierarchical"], 4, marks=pytest.mark.long),
    ],
)
def test_it_is_the_whole_one_on_every_topology(worlds, groups, gates, steps):
    """Against plain torch with whole matrices in one process, by `make verify`'s bounds for float64 gradients and
    float32 weights. Thirds of ZeRO's partitions end inside a matrix, and inside an expert; halves and quarters do not.
    Six processes hold experts cut both ways."""
    config = VerifyConfig(
        worlds=worlds, groups=[groups], precisions=["float64"], gates=gates, steps=steps, optimizer="adafactor"
    )
    verify(config)


@pytest.fixture(scope="module")
def straight(run_job):
    return run_job(processes=2, ep=2, **SETTINGS, checkpoints=CheckpointConfig(every_n=2))


def halfway(straight, tmp_path):
    """The run as it was after two steps."""
    outcome = Outcome(tmp_path / "half")
    shutil.copytree(straight.directory, outcome.directory)
    shutil.rmtree(outcome.checkpoint().with_name("step-00000004"))
    return outcome


@pytest.mark.long  # a short form is in test_skipping.py, with fp16
def test_resuming_is_bitwise(run_job, straight, tmp_path):
    resumed = run_job(processes=2, ep=2, into=halfway(straight, tmp_path), **SETTINGS)
    expected = straight.tensors()
    for name, tensor in resumed.tensors().items():
        assert torch.equal(tensor, expected.pop(name)), name
    assert not expected


def test_resuming_on_another_topology_is_equal(run_job, straight, tmp_path):
    """Moments are by expert and whole, and go on from where they were: up to float32 sums in another order."""
    resumed = run_job(processes=1, ep=1, into=halfway(straight, tmp_path), **SETTINGS, runtime={"zero_stage": 2})
    mine, theirs = resumed.tensors(), straight.tensors()
    assert mine.keys() == theirs.keys()
    for name, tensor in theirs.items():
        size = float(tensor.abs().max())
        torch.testing.assert_close(mine[name], tensor, rtol=1e-3, atol=1e-3 * size, msg=lambda m, n=name: f"{n}: {m}")
    experts = "encoder.layers.1.feed_forward.experts.wi_EMH"
    assert theirs[f"exp_avg_sq_row.{experts}"].shape == (4, 32)
    assert theirs[f"exp_avg_sq_col.{experts}"].shape == (4, 32)
    assert theirs["exp_avg_sq_row.encoder.layers.0.self_attention.wq_MND"].shape == (1, 32)
    assert theirs["exp_avg_sq.encoder.norm.weight"].shape == (32,)
    assert f"exp_avg_sq.{experts}" not in theirs
