"""Adafactor on ZeRO's flat partitions equals Adafactor on whole matrices, and resumes on any topology."""

import pytest
import torch

from pipeline.verify.command import verify
from pipeline.verify.config import VerifyConfig
from tests.parallel.conftest import SPIKES, SPIKY, assert_same_bits, step_name


@pytest.mark.parametrize(
    ("worlds", "groups", "gates", "steps"),
    [
        ([3], 3, ["top2"], 3),
        ([1, 2, 3, 4], 12, ["top2"], 4),
        ([1, 6], 12, ["top2"], 4),
        ([1, 6], 12, ["hierarchical"], 4),
    ],
)
def test_it_is_the_whole_one_on_every_topology(worlds, groups, gates, steps):
    """The reference is plain torch with whole matrices in one process, with the bounds of `make verify`.

    Three processes have partitions that end inside a matrix and inside an expert, unlike two and four processes. With
    six processes, axes and partitions cut experts.
    """
    config = VerifyConfig(
        worlds=worlds, groups=[groups], precisions=["float64"], gates=gates, steps=steps, optimizer="adafactor"
    )
    verify(config)


def test_resuming_is_bitwise(run_wrong, spiky, tmp_path):
    assert_same_bits(run_wrong(SPIKES, into=spiky.until(2, tmp_path), **SPIKY), spiky)


def test_resuming_on_another_topology_is_equal(run_job, spiky, tmp_path):
    """Checkpoints have whole moments of each expert. The bounds are for float32 sums in another order."""
    half, settings = spiky.until(2, tmp_path), {**SPIKY, "max_steps": 4}
    resumed = run_job(processes=1, ep=1, into=half, runtime={"zero_stage": 2}, **settings)
    actual, expected = resumed.tensors(), spiky.tensors(step_name(4))
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        if not name.startswith("window."):
            bound = 1e-3 * float(tensor.abs().max())
            torch.testing.assert_close(actual[name], tensor, rtol=1e-3, atol=bound, msg=lambda m, n=name: f"{n}: {m}")
    experts = "encoder.layers.1.feed_forward.experts.wi_EMH"
    assert expected[f"exp_avg_sq_row.{experts}"].shape == (4, 32)
    assert expected[f"exp_avg_sq_col.{experts}"].shape == (4, 32)
    assert expected["exp_avg_sq_row.encoder.layers.0.self_attention.wq_MND"].shape == (1, 32)
    assert expected["exp_avg_sq.encoder.norm.weight"].shape == (32,)
    assert f"exp_avg_sq.{experts}" not in expected
