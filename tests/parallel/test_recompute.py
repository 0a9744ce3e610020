"""Recomputation with experts cut over processes: its collectives meet, and nothing changes."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.parallel.launch import process_environment


def test_every_mode_trains_to_the_same_bits(tmp_path):
    """Two processes, ep=2, ZeRO 1 and 2: all-to-alls of a recomputed layer run in the middle of backward."""
    script = Path(__file__).with_name("recompute_worker.py")
    processes = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=process_environment(rank, 2, 1, tmp_path / "store"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    assert outputs[0].count("all\n") == 2


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
