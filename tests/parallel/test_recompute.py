"""Recomputation with experts cut over processes: its collectives meet, and nothing changes."""

import pytest

from tests.parallel.conftest import run_worker


def test_every_mode_trains_to_the_same_bits(tmp_path):
    """Two processes, ep=2, ZeRO 1 and 2: all-to-alls of a recomputed layer run in the middle of backward."""
    assert run_worker("recompute_worker.py", tmp_path).count("all\n") == 2


@pytest.mark.long
@pytest.mark.parametrize("zero_stage", [1, 2])
def test_a_job_ends_with_the_same_weights(run_job, zero_stage):
    """The whole trainer, its proof of the routers' gradients and its records of routing included."""
    none, every = (
        run_job(processes=2, ep=2, max_steps=4, runtime={"zero_stage": zero_stage, "recompute": mode})
        for mode in ("none", "all")
    )
    reference = none.tensors()
    for name, tensor in every.tensors().items():
        assert tensor.equal(reference[name]), name
    for mine, theirs in zip(every.records("train"), none.records("train"), strict=True):
        for key in ("cross_entropy", "aux_loss", "gradient_norm", "drop_rate", "layers"):
            assert mine[key] == theirs[key], key
