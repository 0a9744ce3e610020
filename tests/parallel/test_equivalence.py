"""The same batches give the same losses, gradients and weights on any topology, with dropout and random routing on."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.lengths import read_lengths
from pipeline.batch.mixture import Mixture
from pipeline.model.flops import expert_row_flops, forward_flops_without_experts
from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import EVERY, MODEL, make_job, step_name

TOPOLOGIES = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 1, 2)]  # processes, ep, mp
STEPS = 6


@pytest.fixture(scope="module")
def outcomes(run_job, alone, straight):
    """A checkpoint of every step is kept."""
    both = run_job(processes=2, ep=1, max_steps=STEPS, checkpoints=EVERY)
    cut = run_job(processes=2, ep=1, max_steps=STEPS, checkpoints=EVERY, runtime={"mp": 2}, layout=MODEL)
    return dict(zip(TOPOLOGIES, (alone, both, straight, cut), strict=True))


def test_losses_and_clip_norms_agree(outcomes):
    """float32 sums in another order: 1e-6 relative at step 1; a few steps later rounding has grown."""
    reference = outcomes[1, 1, 1].records("train")
    assert len(reference) == STEPS
    for topology in TOPOLOGIES[1:]:
        for mine, theirs in zip(outcomes[topology].records("train"), reference, strict=True):
            tolerance = 2e-6 if mine["step"] == 1 else 1e-4
            for quantity in ("cross_entropy", "aux_loss", "gradient_norm"):
                assert mine[quantity] == pytest.approx(theirs[quantity], rel=tolerance), (
                    topology,
                    quantity,
                    mine["step"],
                )
            assert mine["drop_rate"] == theirs["drop_rate"] or mine["step"] > 1


def test_weights_after_the_steps_agree(outcomes):
    reference = outcomes[1, 1, 1].tensors()
    for topology in TOPOLOGIES[1:]:
        mine = outcomes[topology].tensors()
        assert mine.keys() == reference.keys()
        for name, tensor in reference.items():
            if name.startswith("model."):
                torch.testing.assert_close(mine[name], tensor, atol=2e-4, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")


def test_validation_agrees(outcomes):
    losses = {topology: outcome.records("validation")[-1]["cross_entropy"] for topology, outcome in outcomes.items()}
    assert list(losses.values()) == pytest.approx([losses[1, 1, 1]] * len(TOPOLOGIES), rel=1e-5)


def test_routing_counts_every_group_once(outcomes):
    """On the development sets nothing is drawn. Rounding may move a near-tie: one choice in a thousand."""
    reference, *others = (np.load(outcome.directory / "log" / "routing.npz") for outcome in outcomes.values())
    for mine in others:
        for split in ("train", "dev"):
            moved = np.abs(mine[split] - reference[split]).sum() / reference[split].sum()
            assert moved < 1e-3, split


def test_the_ledger_says_how_it_was_spread_and_counts_flops_once(outcomes):
    ledgers = {t: json.loads((o.directory / "log" / "ledger.json").read_text()) for t, o in outcomes.items()}
    for (processes, ep, mp), ledger in ledgers.items():
        assert (ledger["processes"], ledger["ep"], ledger["mp"]) == (processes, ep, mp)
        assert ledger["flops_per_token"] == ledgers[1, 1, 1]["flops_per_token"]
    assert ledgers[2, 1, 2]["layout"]["H"] == ["model"]


def test_utilisation_counts_the_choices_that_were_served(prepared, outcomes):
    """Counted again from the records: choices served, and tokens of the steps. Executed FLOPs would be a third more."""
    job = make_job(prepared, Path("unused"), processes=1, ep=1)
    steps = iter(Mixture(job.batch, read_lengths(job.pairs, job.encoded), seed=job.train.seed))
    lengths = [next(steps).lengths for _ in range(STEPS)]
    rest = forward_flops_without_experts(job.model, Vocabulary.load(Path(job.vocabulary)).target_size)
    for outcome in outcomes.values():
        ledger = json.loads((outcome.directory / "log" / "ledger.json").read_text())
        useful, tokens = 0.0, 0
        for record, lengths_n2 in zip(outcome.records("train"), lengths, strict=True):
            served = record["experts_per_token"] * lengths_n2.sum()  # one layer of each side has experts
            flops = 3 * (rest.of_sentences(*lengths_n2.T) + served * expert_row_flops(job.model))
            seconds = (record["target_tokens"] - tokens) / record["tokens_per_second"]
            assert record["experts_per_token"] < 2
            assert record["mfu"] == pytest.approx(flops / seconds / record["matmul_peak"], rel=1e-6)
            useful, tokens = useful + flops, record["target_tokens"]
        assert ledger["mfu"] * ledger["train_seconds"] * ledger["matmul_peak"] == pytest.approx(useful, rel=1e-6)
        assert ledger["flops_per_token"] * tokens > useful
        assert ledger["matmul_peak"] >= max(record["matmul_peak"] for record in outcome.records("train"))


def test_a_run_cut_over_a_model_axis_goes_on_with_its_experts_cut(run_job, outcomes, tmp_path):
    """From step 3 on, as if there had been no change; the tolerance is that of other topologies."""
    half = outcomes[2, 1, 2].until(3, tmp_path)
    resumed = run_job(processes=2, ep=2, max_steps=STEPS, into=half).records("train")
    for mine, theirs in zip(resumed, outcomes[2, 2, 1].records("train"), strict=True):
        assert mine["cross_entropy"] == pytest.approx(theirs["cross_entropy"], rel=1e-4)
        assert mine["pairs"] == pytest.approx(theirs["pairs"], rel=1e-4)


def test_bf16_stays_near_fp32_and_keeps_float32_weights(run_job, outcomes):
    """bf16 has 8 bits of mantissa: a mean over thousands of tokens stays within half a percent."""
    outcome = run_job(processes=2, ep=2, max_steps=STEPS, precision="bf16")
    for mine, theirs in zip(outcome.records("train"), outcomes[2, 2, 1].records("train"), strict=True):
        assert mine["cross_entropy"] == pytest.approx(theirs["cross_entropy"], rel=5e-3)
        assert mine["cross_entropy"] != theirs["cross_entropy"]
    state = {n: t for n, t in outcome.tensors().items() if not n.startswith("window.")}
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_gradients_are_those_of_plain_torch(prepared, run_job, outcomes, zero_stage):
    """After one step, whose norm is below that of clipping, AdamW's first moment is (1 - beta1) times the gradient;
    plain autograd is the reference."""
    if zero_stage == 2:
        outcomes = {(2, 2, 1): run_job(processes=2, ep=2, max_steps=1, runtime={"zero_stage": 2})}
    gradients = reference_gradients(prepared)
    for topology, outcome in outcomes.items():
        assert outcome.records("train")[0]["gradient_norm"] < 1
        saved = outcome.tensors(step_name(1))
        for name, gradient in gradients.items():
            mine = saved[f"exp_avg.{name}"] / (1 - 0.9)
            scale = gradient.abs().max()
            where = f"{topology}, {name}"
            torch.testing.assert_close(
                mine / scale, gradient / scale, atol=1e-5, rtol=1e-4, msg=lambda m, w=where: f"{w}: {m}"
            )


def reference_gradients(prepared):
    """One step on one device, without DeepSpeed, process groups or accumulation tricks."""
    job = make_job(prepared, Path("unused"), processes=1, ep=1)
    data = [EncodedSplit.open(Path(d), "train") for d in job.encoded]
    step = next(iter(Mixture(job.batch, read_lengths(job.pairs, job.encoded), seed=job.train.seed)))
    vocabulary = Vocabulary.load(Path(job.vocabulary))
    model = Transformer(
        job.model,
        source_vocabulary=vocabulary.source_size,
        target_vocabulary=vocabulary.target_size,
        shared=False,
        max_positions=96,
    )
    initialize(model, job.train.seed)
    total = torch.zeros(())
    for index, group in enumerate(step.groups):
        seed_group(job.train.seed, 1, index)
        losses = model(assemble(group, step.shape, data), label_smoothing=job.train.label_smoothing)
        aux = sum((s.loss for s in losses.statistics), torch.zeros(()))
        total = total + losses.loss / step.target_tokens + aux / len(step.groups)
    total.backward()
    return {name: p.grad for name, p in model.named_parameters()}
