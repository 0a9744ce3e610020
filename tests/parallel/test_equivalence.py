"""Equal batches give equal losses, gradients and weights on any topology, with dropout and random routing."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.lengths import read_lengths
from pipeline.batch.mixture import Mixture
from pipeline.model.flops import expert_row_flops, forward_flops_without_experts
from pipeline.model.noise import seed_group
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import EVERY, MODEL, initial_model, make_job, step_name

TOPOLOGIES = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 1, 2)]  # processes, ep, mp
STEPS = 6


@pytest.fixture(scope="module")
def outcomes(run_job, alone, straight):
    """The outcomes of all topologies, with a checkpoint of every step."""
    shared_groups = run_job(processes=2, ep=1, max_steps=STEPS, checkpoints=EVERY)
    cut = run_job(processes=2, ep=1, max_steps=STEPS, checkpoints=EVERY, runtime={"mp": 2}, layout=MODEL)
    return dict(zip(TOPOLOGIES, (alone, shared_groups, straight, cut), strict=True))


def test_losses_and_clip_norms_agree(outcomes):
    """float32 sums in another order differ by 1e-6 at step 1. The difference grows in the next steps."""
    reference = outcomes[1, 1, 1].records("train")
    assert len(reference) == STEPS
    for topology in TOPOLOGIES[1:]:
        for actual, expected in zip(outcomes[topology].records("train"), reference, strict=True):
            tolerance = 2e-6 if actual["step"] == 1 else 1e-4
            for quantity in ("cross_entropy", "aux_loss", "gradient_norm"):
                assert actual[quantity] == pytest.approx(expected[quantity], rel=tolerance), (
                    topology,
                    quantity,
                    actual["step"],
                )
            assert actual["drop_rate"] == expected["drop_rate"] or actual["step"] > 1


def test_weights_after_the_steps_agree(outcomes):
    reference = outcomes[1, 1, 1].tensors()
    for topology in TOPOLOGIES[1:]:
        actual = outcomes[topology].tensors()
        assert actual.keys() == reference.keys()
        for name, tensor in reference.items():
            if name.startswith("model."):
                torch.testing.assert_close(
                    actual[name], tensor, atol=2e-4, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}"
                )


def test_validation_agrees(outcomes):
    losses = {topology: outcome.records("validation")[-1]["cross_entropy"] for topology, outcome in outcomes.items()}
    assert list(losses.values()) == pytest.approx([losses[1, 1, 1]] * len(TOPOLOGIES), rel=1e-5)


def test_routing_counts_every_group_once(outcomes):
    """Development sets have no random draws. Rounding may move a near-tie: one choice in a thousand."""
    reference, *arrays = (np.load(outcome.directory / "log" / "routing.npz") for outcome in outcomes.values())
    for actual in arrays:
        for split in ("train", "dev"):
            moved = np.abs(actual[split] - reference[split]).sum() / reference[split].sum()
            assert moved < 1e-3, split


def test_the_ledger_says_how_it_was_spread_and_counts_flops_once(outcomes):
    ledgers = {t: json.loads((o.directory / "log" / "ledger.json").read_text()) for t, o in outcomes.items()}
    for (processes, ep, mp), ledger in ledgers.items():
        assert (ledger["processes"], ledger["ep"], ledger["mp"]) == (processes, ep, mp)
        assert ledger["flops_per_token"] == ledgers[1, 1, 1]["flops_per_token"]
    assert ledgers[2, 1, 2]["layout"]["H"] == ["model"]


def test_utilisation_counts_the_choices_that_were_served(prepared, outcomes):
    """The reference counts served choices and tokens of the records. Executed FLOPs would be a third more."""
    job = make_job(prepared, Path("unused"), processes=1, ep=1)
    steps = iter(Mixture(job.batch, read_lengths(job.pairs, job.encoded), seed=job.train.seed))
    lengths = [next(steps).lengths for _ in range(STEPS)]
    dense = forward_flops_without_experts(job.model, Vocabulary.load(Path(job.vocabulary)).target_size)
    for outcome in outcomes.values():
        ledger = json.loads((outcome.directory / "log" / "ledger.json").read_text())
        useful, tokens = 0.0, 0
        for record, lengths_n2 in zip(outcome.records("train"), lengths, strict=True):
            served = record["experts_per_token"] * lengths_n2.sum()  # one layer of each side has experts
            flops = 3 * (dense.of_sentences(*lengths_n2.T) + served * expert_row_flops(job.model))
            seconds = (record["target_tokens"] - tokens) / record["tokens_per_second"]
            assert record["experts_per_token"] < 2
            assert record["mfu"] == pytest.approx(flops / seconds / record["matmul_peak"], rel=1e-6)
            useful, tokens = useful + flops, record["target_tokens"]
        assert ledger["mfu"] * ledger["train_seconds"] * ledger["matmul_peak"] == pytest.approx(useful, rel=1e-6)
        assert ledger["flops_per_token"] * tokens > useful
        assert ledger["matmul_peak"] >= max(record["matmul_peak"] for record in outcome.records("train"))


def test_a_run_cut_over_a_model_axis_goes_on_with_its_experts_cut(run_job, outcomes, tmp_path):
    """The run continues after step 3 with the losses of an unchanged run. The tolerance is that of other topologies."""
    half = outcomes[2, 1, 2].until(3, tmp_path)
    resumed = run_job(processes=2, ep=2, max_steps=STEPS, into=half).records("train")
    for actual, expected in zip(resumed, outcomes[2, 2, 1].records("train"), strict=True):
        assert actual["cross_entropy"] == pytest.approx(expected["cross_entropy"], rel=1e-4)
        assert actual["pairs"] == pytest.approx(expected["pairs"], rel=1e-4)


def test_bf16_stays_near_fp32_and_keeps_float32_weights(run_job, outcomes):
    """bf16 has 8 bits of mantissa. The error of a mean over thousands of tokens is below half a percent."""
    outcome = run_job(processes=2, ep=2, max_steps=STEPS, precision="bf16")
    for actual, expected in zip(outcome.records("train"), outcomes[2, 2, 1].records("train"), strict=True):
        assert actual["cross_entropy"] == pytest.approx(expected["cross_entropy"], rel=5e-3)
        assert actual["cross_entropy"] != expected["cross_entropy"]
    state = {n: t for n, t in outcome.tensors().items() if not n.startswith("window.")}
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_gradients_are_those_of_plain_torch(prepared, run_job, outcomes, zero_stage):
    """The reference is plain autograd. AdamW's first moment is (1 - beta1) times the first gradient."""
    if zero_stage == 2:
        outcomes = {(2, 2, 1): run_job(processes=2, ep=2, max_steps=1, runtime={"zero_stage": 2})}
    gradients = reference_gradients(prepared)
    for topology, outcome in outcomes.items():
        assert outcome.records("train")[0]["gradient_norm"] < 1
        saved = outcome.tensors(step_name(1))
        for name, gradient in gradients.items():
            actual = saved[f"exp_avg.{name}"] / (1 - 0.9)
            scale = gradient.abs().max()
            where = f"{topology}, {name}"
            torch.testing.assert_close(
                actual / scale, gradient / scale, atol=1e-5, rtol=1e-4, msg=lambda m, w=where: f"{w}: {m}"
            )


def reference_gradients(prepared):
    """Return the gradients of one step on one device, without DeepSpeed, process groups and accumulation."""
    job = make_job(prepared, Path("unused"), processes=1, ep=1)
    data = [EncodedSplit.open(Path(d), "train") for d in job.encoded]
    step = next(iter(Mixture(job.batch, read_lengths(job.pairs, job.encoded), seed=job.train.seed)))
    model = initial_model(job)
    total = torch.zeros(())
    for index, group in enumerate(step.groups):
        seed_group(job.train.seed, 1, index)
        losses = model(assemble(group, step.shape, data), label_smoothing=job.train.label_smoothing)
        aux = sum((s.loss for s in losses.statistics), torch.zeros(()))
        total = total + losses.loss / step.target_tokens + aux / len(step.groups)
    total.backward()
    return {name: p.grad for name, p in model.named_parameters()}
