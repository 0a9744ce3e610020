"""A run that is killed at random moments and continued equals one without interruption, bit for bit."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict

from pipeline.jobs.launch import process_environment
from pipeline.train.config import CheckpointConfig
from tests.parallel.conftest import Outcome, assert_same_bits, make_job

# Values that depend on a clock or on the machine.
TIMES = {"seconds", "tokens_per_second", "mfu", "matmul_peak", "memory", "data_wait"}


def spawn(job):
    """Start both processes without a launcher."""
    log = job.log
    log.mkdir(parents=True, exist_ok=True)
    store, job_file = log / "rendezvous", log / "job.json"
    store.unlink(missing_ok=True)
    job_file.write_text(json.dumps(asdict(job)))
    with (log / "output").open("ab") as output:
        return [
            subprocess.Popen(
                [sys.executable, "-m", "pipeline.train", str(job_file)],
                env=process_environment(rank, 2, 1, store),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            for rank in range(2)
        ]


def finish(job):
    for process in spawn(job):
        assert process.wait(timeout=120) == 0, (job.log / "output").read_text()[-3000:]
    return Outcome(job.log.parent)


def reached(job, before):
    """Return the last recorded step of this attempt, which writes a new file; -1 before that."""
    metrics = job.log / "metrics.jsonl"
    if not metrics.exists() or metrics.stat().st_ino == before:
        return -1
    whole = metrics.read_text().rpartition("\n")[0]
    return json.loads(whole.splitlines()[-1])["step"] if whole else 0


def saving(job, since):
    """Return true if this attempt is writing a checkpoint. since: its start, in seconds since the epoch."""
    for path in (job.log.parent / "checkpoints").glob("*.partial"):
        with suppress(FileNotFoundError):  # published meanwhile
            if path.stat().st_mtime > since:
                return True
    return False


def kill(job, moment, target, chance):
    """Start the processes, wait for the moment and kill one or both. Return true if the run had not ended before.

    At the start kill both, because no process waits yet for a lost one.
    """
    metrics = job.log / "metrics.jsonl"
    before, began = metrics.stat().st_ino if metrics.exists() else None, time.time()
    processes = spawn(job)

    def wait(condition):
        while not condition() and all(p.poll() is None for p in processes):
            assert time.time() - began < 120, (job.log / "output").read_text()[-3000:]
            time.sleep(0.001)

    if moment == "start":
        time.sleep(chance.uniform(0, 8))
    else:
        wait(lambda: reached(job, before) >= target)
    if moment == "save":
        wait(lambda: saving(job, began))
    elif moment == "step":
        time.sleep(chance.uniform(0, 0.3))
    early = all(process.poll() is None for process in processes)
    victims = chance.choice([processes[:1], processes[1:], processes])
    for process in processes if moment == "start" else victims:
        os.kill(process.pid, signal.SIGKILL)
    for process in processes:
        process.wait(timeout=60)  # a process that lost its peer ends by itself
    return early


def records(outcome):
    lines = (outcome.directory / "log" / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in TIMES} for line in lines]


def state(outcome):
    values = json.loads((outcome.checkpoint() / "state.json").read_text())
    del values["progress"]["train_seconds"]
    for name in ("shards", "resume_shards", "matmul_peak", "sha256"):
        del values[name]
    return values


def killed_run_equals_straight_run(prepared, tmp_path, moments, max_steps, seed):
    keep = CheckpointConfig(best_k=2, last_n=2, every_n=8, save_every=2)
    settings = {"max_steps": max_steps, "validate_every": 4, "log_every": 3, "patience": 50, "checkpoints": keep}
    chance = random.Random(seed)
    straight = finish(make_job(prepared, tmp_path / "straight", processes=2, ep=2, **settings))
    job = make_job(prepared, tmp_path / "killed", processes=2, ep=2, **settings)
    targets = sorted(chance.sample(range(2, max_steps - 4), len(moments)))
    early = [kill(job, moment, target, chance) for moment, target in zip(moments, targets, strict=True)]
    assert all(early), "it ended before it could be killed"
    killed = finish(job)
    assert records(killed) == records(straight)
    assert state(killed) == state(straight)
    assert_same_bits(killed, straight)
    kept = [sorted(path.name for path in (o.directory / "checkpoints").iterdir()) for o in (killed, straight)]
    assert kept[0] == kept[1]
    assert (killed.directory / "checkpoints" / "best.json").read_text() == (
        straight.directory / "checkpoints" / "best.json"
    ).read_text()


def test_two_kills_change_nothing(prepared, tmp_path):
    killed_run_equals_straight_run(prepared, tmp_path, ["save", "step"], max_steps=12, seed=7)


def test_twenty_kills_change_nothing(prepared, tmp_path):
    moments = ["save", "step", "save", "start"] * 5
    killed_run_equals_straight_run(prepared, tmp_path, moments, max_steps=120, seed=11)
