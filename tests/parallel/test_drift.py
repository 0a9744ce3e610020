"""Copies of parameters that an axis of the mesh does not cut are made equal at each checkpoint."""

from dataclasses import asdict

import pytest

from pipeline.jobs.launch import launch
from tests.parallel.conftest import EVERY, MODEL, Outcome, assert_same_bits, make_job, run_worker


@pytest.mark.parametrize(("sizes", "optimizer"), [((1, 1, 2), "adamw"), ((2, 1, 2), "adafactor")])
def test_what_drifts_is_found_and_repaired_and_nothing_else_changes(tmp_path, sizes, optimizer):
    """The processes compare all state, before and after, by other means. Without drift, 12 bytes a copy are sent."""
    arguments = ("x".join(map(str, sizes)), optimizer)
    output = run_worker("drift_worker.py", tmp_path, *arguments, processes=sizes[0] * sizes[2])
    assert output.endswith("done\n")


def drifting(prepared, out, max_steps):
    job = make_job(
        prepared,
        out,
        processes=2,
        ep=1,
        layout=MODEL,
        runtime={"mp": 2},
        max_steps=max_steps,
        ema=0.5,
        checkpoints=EVERY,
    )
    launch("tests.parallel.drifting_worker", asdict(job), directory=job.log, processes=2, threads=1, title=job.title)
    return Outcome(out)


def test_a_run_that_drifts_says_so_and_resumes_bit_for_bit(prepared, tmp_path, capfd):
    """Without repair, a resumed run would continue from one copy, and an uninterrupted one from both."""
    straight = drifting(prepared, tmp_path / "straight", 4)
    resumed = straight.until(3, tmp_path)
    drifting(prepared, resumed.directory, 4)
    assert_same_bits(resumed, straight)
    assert resumed.records("drift") == straight.records("drift")
    assert [record["step"] for record in straight.records("drift")] == [2, 3, 4]
    for record in straight.records("drift"):
        assert record["tensors"] > 10
        assert record["elements"] > 100
        assert 1e-6 < record["largest"] < 2e-3
    assert "step 2: copies of state had drifted apart and are equal again: " in capfd.readouterr().err
