"""The same batches give the same losses, gradients and weights on any topology, with dropout and random routing on."""

from pathlib import Path

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.lengths import read_lengths
from pipeline.batch.mixture import Mixture
from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import make_job

TOPOLOGIES = [(1, 1), (2, 1), (2, 2)]
STEPS = 4


@pytest.fixture(scope="module")
def outcomes(run_job):
    return {topology: run_job(processes=topology[0], ep=topology[1], max_steps=STEPS) for topology in TOPOLOGIES}


def test_losses_and_clip_norms_agree(outcomes):
    """float32 sums in another order: 1e-6 relative at step 1; a few steps later rounding has grown."""
    reference = outcomes[1, 1].records("train")
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
    reference = outcomes[1, 1].tensors()
    for topology in TOPOLOGIES[1:]:
        mine = outcomes[topology].tensors()
        assert mine.keys() == reference.keys()
        for name, tensor in reference.items():
            if name.startswith("model."):
                torch.testing.assert_close(mine[name], tensor, atol=2e-4, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")


def test_validation_agrees(outcomes):
    losses = {topology: outcome.records("validation")[-1]["cross_entropy"] for topology, outcome in outcomes.items()}
    assert losses[2, 1] == pytest.approx(losses[1, 1], rel=1e-5)
    assert losses[2, 2] == pytest.approx(losses[1, 1], rel=1e-5)


def test_bf16_stays_near_fp32_and_keeps_float32_weights(run_job, outcomes):
    """bf16 has 8 bits of mantissa: a mean over thousands of tokens stays within half a percent."""
    outcome = run_job(processes=2, ep=2, max_steps=STEPS, precision="bf16")
    for mine, theirs in zip(outcome.records("train"), outcomes[2, 2].records("train"), strict=True):
        assert mine["cross_entropy"] == pytest.approx(theirs["cross_entropy"], rel=5e-3)
        assert mine["cross_entropy"] != theirs["cross_entropy"]
    state = {n: t for n, t in outcome.tensors().items() if not n.startswith("window.")}
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}


@pytest.mark.parametrize(("topology", "zero_stage"), [((1, 1), 1), ((2, 1), 1), ((2, 2), 1), ((2, 2), 2)])
def test_gradients_are_those_of_plain_torch(prepared, run_job, topology, zero_stage):
    """After one unclipped step AdamW's first moment is (1 - beta1) times the gradient; plain autograd is the
    reference."""
    outcome = run_job(
        processes=topology[0], ep=topology[1], max_steps=1, clip_norm=0.0, runtime={"zero_stage": zero_stage}
    )
    saved = outcome.tensors()
    for name, gradient in reference_gradients(prepared).items():
        mine = saved[f"exp_avg.{name}"] / (1 - 0.9)
        scale = gradient.abs().max()
        torch.testing.assert_close(
            mine / scale, gradient / scale, atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
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
