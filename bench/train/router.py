"""Weights with a trained router, from which our own contenders with experts start.

An untrained router sends many tokens to few experts, so that capacity drops thousands of choices. Such a layer does
less useful work than a layer in the middle of a training.
"""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

from bench.train.contenders import Contest
from bench.train.data import Sample
from pipeline.config import ROOT
from pipeline.jobs.launch import launch
from pipeline.train.config import TrainConfig
from pipeline.train.job import TrainJob
from pipeline.train.trainer import CHECKPOINTS

ARTIFACTS = ROOT / "data" / "artifacts" / "bench"


def trained_router(contest: Contest, sample: Sample, job: TrainJob) -> Path:
    """Return the checkpoints directory after `contest.router_steps` steps, which an earlier benchmark may have trained.

    job: one of our contenders, for all settings but budget and batches.
    Raises JobFailed if training fails.
    """
    batch = contest.router_batch
    training = TrainConfig(
        max_steps=contest.router_steps,
        max_tokens=0,
        learning_rate=1e-3,
        warmup_steps=contest.router_steps // 4,
        weight_decay=0.01,
        validate_every=contest.router_steps,
        precision="bf16",  # the quicker one here; the weights stay float32
    )
    content = [asdict(contest.model), batch.to_key(), asdict(training), sample.encoded, sample.vocabulary]
    key = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    out = ARTIFACTS / f"router-{key}"
    checkpoints = out / CHECKPOINTS
    marker = out / "done"
    if not marker.exists():
        job = replace(job, title=f"{contest.title}: router", out=str(out), batch=batch, train=training)
        runtime = job.runtime
        launch(
            "pipeline.train",
            asdict(job),
            directory=job.log,
            processes=runtime.processes,
            threads=runtime.threads,
            title=job.title,
        )
        marker.touch()
    return checkpoints
