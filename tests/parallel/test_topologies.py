"""A checkpoint passes through other topologies and back without a changed bit, and training continues from it."""

import json
from dataclasses import asdict

import pytest
import torch

from pipeline.jobs.launch import launch
from tests.parallel.conftest import EVERY, Outcome, make_job

BOUND = 1e-4  # relative, of losses: float32's rounding over 20 steps may move a near-tie of a router


def resave(prepared, outcome, into, processes, ep, zero_stage, **settings):
    """Restore the last checkpoint on another topology and save it again."""
    checkpoint = outcome.checkpoint()
    place = into / "checkpoints" / checkpoint.name
    place.parent.mkdir(parents=True)
    checkpoint.rename(place)
    runtime = {"zero_stage": zero_stage}
    job = make_job(prepared, into, processes=processes, ep=ep, runtime=runtime, **settings)
    launch(
        "tests.parallel.resave_worker",
        asdict(job),
        directory=job.log,
        processes=processes,
        threads=1,
        title=f"{processes} processes, ep={ep}, ZeRO-{zero_stage}",
    )
    place.rename(checkpoint)
    again = place.with_name("again").rename(place)
    marks = json.loads((outcome.directory / "checkpoints" / "best.json").read_text())
    (place.parent / "best.json").write_text(json.dumps(marks))
    assert sum(1 for _ in again.glob("*.safetensors")) == 2 * processes
    return Outcome(into)


def state(outcome):
    values = json.loads((outcome.checkpoint() / "state.json").read_text())
    return {
        k: v
        for k, v in values.items()
        if k not in ("shards", "resume_shards", "sha256", "world", "validation", "code", "matmul_peak")
    }


def round_trip(run_job, prepared, tmp_path, begin, hops, steps, **settings):
    processes, ep, zero_stage = begin
    keep = {"runtime": {"zero_stage": zero_stage}, "checkpoints": EVERY}
    straight = run_job(processes=processes, ep=ep, max_steps=steps, **keep, **settings)
    last = first = straight.until(3, tmp_path)
    for number, hop in enumerate((*hops, begin)):
        last = resave(prepared, last, tmp_path / str(number), *hop, max_steps=3, **settings)
        tensors = last.tensors()
        for name, tensor in first.tensors().items():
            assert torch.equal(tensors.pop(name), tensor), f"{name} at {hop}"
        assert not tensors
        assert state(last) == state(first), hop
    processes, ep, zero_stage = hops[0]
    moved = Outcome(tmp_path / "0")
    resumed = run_job(
        processes=processes, ep=ep, max_steps=steps, into=moved, runtime={"zero_stage": zero_stage}, **settings
    )
    expected = [r["cross_entropy"] for r in straight.records("train")][3:]
    losses = [r["cross_entropy"] for r in resumed.records("train")]
    assert losses == pytest.approx(expected, rel=BOUND)
    assert len(losses) == steps - 3


def test_two_processes_and_one(run_job, prepared, tmp_path):
    round_trip(run_job, prepared, tmp_path, (2, 2, 1), [(1, 1, 1), (2, 1, 2)], steps=6, ema=0.9)


def test_four_processes_two_and_one(run_job, prepared, tmp_path):
    round_trip(run_job, prepared, tmp_path, (4, 4, 1), [(2, 1, 2), (1, 1, 1)], steps=23)
