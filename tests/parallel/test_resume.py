"""An interrupted run continues without a difference, and a checkpoint fits any topology."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from pipeline.engine.checkpoint.logical import newest
from pipeline.engine.checkpoint.weights import read_state, verify
from pipeline.jobs.launch import JobFailed, process_environment
from pipeline.model.config import MoEConfig
from tests.parallel.conftest import assert_same_bits, make_job


def test_resuming_is_bitwise(run_job, straight, tmp_path):
    first = straight.until(3, tmp_path)
    assert first.checkpoint().name == "step-00000003"
    resumed = run_job(processes=2, ep=2, max_steps=6, into=first)
    assert [r["step"] for r in resumed.records("train")] == [1, 2, 3, 4, 5, 6]
    for actual, expected in zip(resumed.records("train"), straight.records("train"), strict=True):
        assert actual["cross_entropy"] == expected["cross_entropy"], actual["step"]
    assert_same_bits(resumed, straight)


def test_deterministic_kernels_change_no_result_on_a_cpu(run_job, straight):
    outcome = run_job(processes=2, ep=2, max_steps=6, runtime={"deterministic": True})
    assert_same_bits(outcome, straight)
    losses = [record["cross_entropy"] for record in outcome.records("train")]
    assert losses[-1] < losses[0]


def test_resuming_on_another_topology_keeps_the_optimizer(run_job, straight, tmp_path):
    """A run with experts cut over two processes resumes on one process, with equal losses up to rounding."""
    first = straight.until(3, tmp_path)
    resumed = run_job(processes=1, ep=1, max_steps=6, into=first, runtime={"zero_stage": 2})
    for actual, expected in zip(resumed.records("train"), straight.records("train"), strict=True):
        assert actual["cross_entropy"] == pytest.approx(expected["cross_entropy"], rel=1e-4), actual["step"]
    for name, tensor in straight.tensors().items():
        if name.startswith("exp_avg_sq."):
            torch.testing.assert_close(resumed.tensors()[name], tensor, atol=1e-6, rtol=1e-2)


def test_a_crash_between_the_last_save_and_its_mark_loses_nothing(run_job):
    outcome = run_job(processes=1, ep=1, max_steps=2)
    mark = outcome.directory / "checkpoints" / "best.json"
    marked = mark.read_text()
    mark.unlink()
    assert run_job(processes=1, ep=1, max_steps=2, into=outcome).checkpoint().name == "step-00000002"
    assert mark.read_text() == marked


def damage(checkpoint):
    shard = next(checkpoint.glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)


def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_taken(run_job, alone, tmp_path, caplog):
    outcome = alone.until(2, tmp_path)
    second = outcome.checkpoint()
    first = second.with_name("step-00000001")
    damage(second)
    with pytest.raises(ValueError, match="is damaged"):
        verify(second, whole=True)
    assert newest(first.parent) == first
    assert "step-00000002 is damaged" in caplog.text
    assert "taking step-00000001 instead" in caplog.text
    assert run_job(processes=1, ep=1, max_steps=2, into=outcome).checkpoint() == second
    verify(second, whole=True)  # it was written again
    for checkpoint in second.parent.glob("step-*"):
        damage(checkpoint)
    with pytest.raises(JobFailed, match=r"is damaged.*there is no older one: delete"):
        run_job(processes=1, ep=1, max_steps=3, into=outcome)


def run_with_small_files(job, tmp_path):
    """Run training with files of 64 kB at most. The limit gives an OSError in the same write as a full disk."""
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536));"
        "sys.argv = ['train', sys.argv[1]]; import runpy; runpy.run_module('pipeline.train', run_name='__main__')"
    )
    job_file = job.log / "job.json"
    job_file.write_text(json.dumps(asdict(job)))
    environment = {**os.environ, **process_environment(0, 1, 1, tmp_path / "store"), "BABELSHARD_PARENT": "0"}
    return subprocess.run(
        [sys.executable, "-c", script, str(job_file)], env=environment, capture_output=True, text=True
    )


def test_a_full_disk_during_a_save_does_not_end_training_but_at_the_end_it_is_one_clear_error(
    prepared, alone, tmp_path
):
    outcome = alone.until(1, tmp_path)
    kept = outcome.checkpoint()
    job = make_job(prepared, outcome.directory, processes=1, ep=1, max_steps=5, validate_every=2)
    result = run_with_small_files(job, tmp_path)
    assert result.returncode == 1  # because the last save failed
    assert "File too large" in (outcome.directory / "log" / "rank-0.error").read_text()
    assert [r["step"] for r in outcome.records("train")] == [1, 2, 3, 4, 5]
    failed = outcome.records("checkpoint_failed")
    assert [r["checkpoint"] for r in failed] == ["step-00000002", "step-00000004"]
    assert "File too large" in failed[0]["error"]
    assert "warning: checkpoint step-00000002 was not written, the one before it is kept" in result.stderr
    assert newest(kept.parent) == kept
    assert sorted(path.name for path in kept.parent.iterdir()) == ["best.json", "step-00000001"]


def test_a_half_written_checkpoint_is_not_seen(tmp_path):
    (tmp_path / "step-00000005.partial").mkdir()
    (tmp_path / "step-00000005.partial" / "state.json").write_text("{}")  # killed before the rename
    (tmp_path / "step-00000004").mkdir()
    assert newest(tmp_path) is None


def test_a_state_that_is_cut_off_is_damage_too(tmp_path, caplog):
    for step in (1, 2):
        (tmp_path / f"step-{step:08}").mkdir()
        (tmp_path / f"step-{step:08}" / "state.json").write_text('{"format": 1, "shards": {}}')
    (tmp_path / "step-00000002" / "state.json").write_text('{"format": 1, "sha')
    assert newest(tmp_path) == tmp_path / "step-00000001"
    assert "step-00000002 is damaged: state.json cannot be read" in caplog.text
    assert "taking step-00000001 instead" in caplog.text


def test_early_stopping_goes_on_counting(run_job):
    """With a tiny learning rate no weight changes, so all validations are equal."""
    settings = {"learning_rate": 1e-30, "validate_every": 1, "patience": 4}
    outcome = run_job(processes=1, ep=1, max_steps=3, **settings)
    run_job(processes=1, ep=1, max_steps=100, into=outcome, **settings)
    assert [r["step"] for r in outcome.records("validation")] == [1, 2, 3, 4, 5]
    progress = read_state(outcome.checkpoint())["progress"]
    assert (progress["best_step"], progress["stale_validations"]) == (1, 4)
    assert sorted(path.name for path in outcome.checkpoint().parent.glob("step-*")) == [
        "step-00000001",
        "step-00000005",
    ]


@pytest.mark.parametrize(
    ("moe", "message"),
    [
        (MoEConfig(), r"diverged at step \d+"),
        (MoEConfig(num_experts=4, expert_dim=32), r"NaN or infinite router logits in layer encoder\.2, .*at step \d+"),
    ],
)
def test_divergence_stops_with_an_error_and_keeps_the_checkpoint(run_job, alone, dense, tmp_path, moe, message):
    good = (alone if moe.num_experts else dense).until(2, tmp_path)
    with pytest.raises(JobFailed, match=message):
        run_job(processes=1, ep=1, max_steps=40, into=good, learning_rate=1e30, warmup_steps=1, moe=moe)
    verify(good.checkpoint(), whole=True)


def test_a_killed_process_ends_the_job_with_its_name(prepared, tmp_path):
    """After SIGKILL of one process the other does not wait for it. The error names the process and the signal."""
    script = Path(__file__).with_name("run_forever.py")
    process = subprocess.Popen(
        [sys.executable, str(script), prepared.vocabulary, str(tmp_path), *prepared.encoded],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    victim = None
    deadline = time.monotonic() + 60
    while victim is None and time.monotonic() < deadline:
        time.sleep(0.2)
        metrics = tmp_path / "log" / "metrics.jsonl"
        if metrics.exists() and metrics.read_text().count("\n") >= 2:
            victim = next(pid for pid, rank in children(process.pid) if rank == "1")
    assert victim is not None, process.stderr.read() if process.poll() is not None else "no progress in 60 s"
    os.kill(victim, signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert "process 1 of 2 was killed by SIGKILL" in output


def children(parent):
    """Yield the pid and the RANK of each child of a process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(status[1]) == parent:
                    environment = (entry / "environ").read_bytes().split(b"\0")
                    yield int(entry.name), next((e[5:].decode() for e in environment if e.startswith(b"RANK=")), "")
            except (FileNotFoundError, ProcessLookupError):
                continue
