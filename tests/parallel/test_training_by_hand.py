"""The steps and records of a run are computed again from its checkpoints, without the trainer."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.batch.lengths import read_lengths
from pipeline.batch.mixture import Mixture
from pipeline.vocab.encoded import EncodedSplit
from tests.parallel.conftest import initial_model, make_job, step_name

PEAK, WARMUP, BETA1, BETA2, EPSILON = 3e-3, 4, 0.9, 0.98, 1e-9
RATES = [PEAK / 4, PEAK / 2, PEAK * 3 / 4, PEAK, PEAK * math.sqrt(4 / 5), PEAK * math.sqrt(4 / 6)]  # of steps 1 to 6


def test_every_step_is_adamw_at_the_rate_of_its_own_number(prepared, alone):
    """The reference is algorithm 2 of arXiv:1711.05101 in float64, on the saved moments, without weight decay.

    Weights are float32 below 2, so a step is rounded by 2^-24 of them at most. The bound 1e-6 also allows for the
    rounding of moments. The rates of two steps differ by at least 1e-4.
    """
    job = make_job(prepared, Path("unused"), processes=1, ep=1)
    assert (job.train.warmup_steps, job.train.learning_rate, job.train.weight_decay) == (WARMUP, PEAK, 0.0)
    weights = {name: tensor.detach() for name, tensor in initial_model(job).named_parameters()}
    assert [record["lr"] for record in alone.records("train")] == pytest.approx(RATES)
    for step, rate in enumerate(RATES, start=1):
        saved = alone.tensors(step_name(step))
        for name, before in weights.items():
            mean = saved[f"exp_avg.{name}"].double() / (1 - BETA1**step)
            square = saved[f"exp_avg_sq.{name}"].double() / (1 - BETA2**step)
            expected = before.double() - rate * mean / (square.sqrt() + EPSILON)
            after = saved[f"model.{name}"]
            where = f"step {step}, {name}"
            torch.testing.assert_close(after.double(), expected, atol=1e-6, rtol=0, msg=lambda m, w=where: f"{w}: {m}")
        weights = {name: saved[f"model.{name}"] for name in weights}


def test_clipping_weight_decay_and_the_rate_of_experts(prepared, run_job, alone):
    """The first step of `alone` runs again, with its gradient clipped to a norm of 0.1.

    Clipping scales moments but not AdamW's direction. Matrices, embeddings and experts decay; vectors do not.
    """
    settings = {"clip_norm": 0.1, "weight_decay": 0.5, "expert_learning_rate": 0.5}
    outcome = run_job(processes=1, ep=1, max_steps=1, **settings)
    norm = alone.records("train")[0]["gradient_norm"]
    assert norm > 0.2
    assert outcome.records("train")[0]["gradient_norm"] == pytest.approx(norm, rel=1e-5)
    saved, unclipped = outcome.tensors(), alone.tensors(step_name(1))
    for name, parameter in initial_model(make_job(prepared, Path("unused"), processes=1, ep=1)).named_parameters():
        mean, before = saved[f"exp_avg.{name}"].double(), parameter.detach().double()
        expected = unclipped[f"exp_avg.{name}"].double() * 0.1 / norm
        # The tolerance is for 1e-6, which DeepSpeed adds to the norm, and for rounding.
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
        rate = RATES[0] * (0.5 if ".experts." in name else 1.0)
        decay = 0.5 if parameter.dim() > 1 else 0.0
        square = saved[f"exp_avg_sq.{name}"].double() / (1 - BETA2)
        direction = mean / (1 - BETA1) / (square.sqrt() + EPSILON)
        after = before - rate * (direction + decay * before)
        torch.testing.assert_close(
            saved[f"model.{name}"].double(), after, atol=1e-6, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_what_is_recorded_of_a_step_is_of_that_step(prepared, alone):
    """The mean of the pairs' cross-entropy, weighted by their target tokens, is that of the step.

    The mean load of experts is a fair share.
    """
    job = make_job(prepared, Path("unused"), processes=1, ep=1)
    steps = iter(Mixture(job.batch, read_lengths(job.pairs, job.encoded), seed=job.train.seed))
    for record, step in zip(alone.records("train"), steps, strict=False):
        tokens = np.bincount(step.sentences[:, 0], weights=step.lengths[:, 1])
        by_pair = [record["pairs"][pair] for pair in job.pairs]
        assert record["cross_entropy"] == pytest.approx(np.average(by_pair, weights=tokens), rel=1e-6)  # float32
        for layer in record["layers"].values():
            assert 0 <= layer["load_min"] <= 1 <= layer["load_max"] <= job.model.moe.num_experts


def test_validation_is_the_mean_over_real_target_tokens_of_sentences_alone(prepared, alone):
    """The reference has one sentence per row, without padding, in float64. The run packed them, in float32."""
    job = make_job(prepared, Path("unused"), processes=1, ep=1)
    model = initial_model(job)
    saved = alone.tensors()
    model.load_state_dict({name: saved[f"model.{name}"] for name, _ in model.named_parameters()})
    model.double().eval()
    means = []
    for directory in prepared.encoded:
        dev = EncodedSplit.open(Path(directory), "dev")
        nats, tokens = 0.0, 0
        for index in range(len(dev)):
            shape = GroupShape(rows=1, source=len(dev.source(index)), target=len(dev.target(index)))
            with torch.no_grad():
                nll_BT = model(assemble([[(0, index)]], shape, [dev]), label_smoothing=0.0).nll_BT
            nats, tokens = nats + float(nll_BT.sum()), tokens + shape.target
        means.append(nats / tokens)
    record = alone.records("validation")[-1]
    assert record["step"] == 6
    assert list(record["pairs"].values()) == pytest.approx(means, rel=1e-5)
    assert record["cross_entropy"] == pytest.approx(sum(means) / len(means), rel=1e-5)
