"""Recomputation with experts cut over processes works and does not change the result."""

import pytest

from tests.parallel.conftest import assert_same_bits, run_worker


def test_every_mode_trains_to_the_same_bits(tmp_path):
    """With two processes, ep=2 and ZeRO 1 and 2, all-to-alls of a recomputed layer run during backward."""
    assert run_worker("recompute_worker.py", tmp_path).count("all\n") == 2


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_a_job_ends_with_the_same_weights(run_job, zero_stage):
    """The whole trainer gives equal weights and records, also of routing."""
    none, everything = (
        run_job(processes=2, ep=2, max_steps=4, runtime={"zero_stage": zero_stage, "recompute": mode})
        for mode in ("none", "all")
    )
    assert_same_bits(everything, none)
    for actual, expected in zip(everything.records("train"), none.records("train"), strict=True):
        for key in ("cross_entropy", "aux_loss", "gradient_norm", "drop_rate", "layers"):
            assert actual[key] == expected[key], key
