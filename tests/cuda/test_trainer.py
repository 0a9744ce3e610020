"""The training loop on cuda:0: data, steps, validation, records, checkpoints and resumption are those of a CPU."""

import shutil
from dataclasses import replace

import pytest

from tests.cuda.trainer import run_job
from tests.parallel.conftest import Outcome, assert_same_bits, make_job


def job_of(prepared, out, steps, **changes):
    job = make_job(prepared, out, processes=1, ep=1, max_steps=steps, validate_every=2, **changes)
    return replace(job, model=replace(job.model, dropout=0.0))  # whose draws differ


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adafactor", "ema": 0.5}], ids=str)
def test_a_run_and_its_continuation(on_impostor, on_cpu, prepared, tmp_path, settings):
    for device, run in (("cpu", on_cpu), ("cuda", on_impostor)):
        run(run_job, job_of(prepared, tmp_path / device, 4, **settings), device)
    cpu_run, cuda_run = Outcome(tmp_path / "cpu"), Outcome(tmp_path / "cuda")
    for event in ("train", "validation"):
        losses = [[record["cross_entropy"] for record in run.records(event)] for run in (cpu_run, cuda_run)]
        assert len(losses[0]) == (4 if event == "train" else 2)
        assert losses[1] == pytest.approx(losses[0], rel=1e-4), event
    on_impostor(run_job, job_of(prepared, tmp_path / "half", 2, **settings), "cuda")
    on_impostor(run_job, job_of(prepared, tmp_path / "half", 4, **settings), "cuda")
    assert_same_bits(Outcome(tmp_path / "half"), cuda_run)
    # a checkpoint of cuda:0 continues on a CPU
    shutil.rmtree(tmp_path / "half")
    on_impostor(run_job, job_of(prepared, tmp_path / "half", 2, **settings), "cuda")
    on_cpu(run_job, job_of(prepared, tmp_path / "half", 4, **settings), "cpu")
    last = [run.records("validation")[-1]["cross_entropy"] for run in (cpu_run, Outcome(tmp_path / "half"))]
    assert last[1] == pytest.approx(last[0], rel=1e-4)
