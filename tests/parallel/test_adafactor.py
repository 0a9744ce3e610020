"""Adafactor on ZeRO's flat partitions is Adafactor on whole matrices, and resumes on any topology."""

import pytest
import torch

from pipeline.verify.command import verify
from pipeline.verify.config import VerifyConfig
from tests.parallel.conftest import SPIKES, SPIKY, step_name


@pytest.mark.parametrize(
    ("worlds", "groups", "gates", "steps"),
    [
        ([3], 3, ["top2"], 3),
        pytest.param([1, 2, 3, 4, 6], 12, ["top2"], 4, marks=pytest.mark.long),
        pytest.param([1, 2, 3, 4, 6], 12, ["hierarchical"], 4, marks=pytest.mark.long),
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


@pytest.mark.long  # a short form is in test_skipping.py, with fp16
def test_resuming_is_bitwise(run_wrong, spiky, tmp_path):
    resumed = run_wrong(SPIKES, into=spiky.until(2, tmp_path), **SPIKY)
    expected = spiky.tensors()
    for name, tensor in resumed.tensors().items():
        assert torch.equal(tensor, expected.pop(name)), name
    assert not expected


def test_resuming_on_another_topology_is_equal(run_job, spiky, tmp_path):
    """Moments are by expert and whole, and go on from where they were: up to float32 sums in another order."""
    half, settings = spiky.until(2, tmp_path), {**SPIKY, "max_steps": 4}
    resumed = run_job(processes=1, ep=1, into=half, runtime={"zero_stage": 2}, **settings)
    mine, theirs = resumed.tensors(), spiky.tensors(step_name(4))
    assert mine.keys() == theirs.keys()
    for name, tensor in theirs.items():
        if not name.startswith("window."):
            bound = 1e-3 * float(tensor.abs().max())
            torch.testing.assert_close(mine[name], tensor, rtol=1e-3, atol=bound, msg=lambda m, n=name: f"{n}: {m}")
    experts = "encoder.layers.1.feed_forward.experts.wi_EMH"
    assert theirs[f"exp_avg_sq_row.{experts}"].shape == (4, 32)
    assert theirs[f"exp_avg_sq_col.{experts}"].shape == (4, 32)
    assert theirs["exp_avg_sq_row.encoder.layers.0.self_attention.wq_MND"].shape == (1, 32)
    assert theirs["exp_avg_sq.encoder.norm.weight"].shape == (32,)
    assert f"exp_avg_sq.{experts}" not in theirs
