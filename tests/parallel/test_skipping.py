"""Loss spikes and overflows of fp16 change no weight on any process."""

import itertools
from pathlib import Path

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.lengths import read_lengths
from pipeline.batch.mixture import Mixture
from pipeline.engine.checkpoint.weights import read_state
from pipeline.jobs.launch import JobFailed
from pipeline.model.noise import seed_group
from pipeline.train.config import CheckpointConfig
from pipeline.train.spikes import SpikeConfig
from pipeline.vocab.encoded import EncodedSplit
from tests.parallel.conftest import SPIKES, SPIKY, assert_same_bits, initial_model, make_job, step_name


def assert_unchanged(outcome, first, last):
    """Assert that weights, moments and averages are equal after two steps. The sums of the window may differ."""
    before, after = outcome.tensors(step_name(first)), outcome.tensors(step_name(last))
    for key, tensor in before.items():
        assert torch.equal(after[key], tensor) or key.startswith("window."), key


def test_spikes_are_skipped_and_logged(spiky):
    assert [record["step"] for record in spiky.records("train")] == [1, 2, 3, 4, 7]
    norms = {record["step"]: record["gradient_norm"] for record in spiky.records("train")}
    not_finite, large = spiky.records("skipped")
    assert (not_finite["step"], not_finite["reason"], not_finite["gradient_norm"]) == (5, "spike", None)
    assert (large["step"], large["reason"]) == (6, "spike")
    assert large["median_norm"] == sorted(norms[step] for step in (2, 3, 4))[1]
    assert large["gradient_norm"] > 5 * large["median_norm"]
    assert_unchanged(spiky, 4, 6)
    after, moved = spiky.tensors(step_name(6)), spiky.tensors(step_name(7))
    assert not any(torch.equal(moved[key], after[key]) for key in moved if key.startswith(("model.", "ema.")))
    states = [read_state(spiky.checkpoint().with_name(step_name(step))) for step in (6, 7)]
    assert [state["engine"]["updates"] for state in states] == [4, 5]
    assert [state["progress"]["step"] for state in states] == [6, 7]
    assert [state["guard"]["skipped"] for state in states] == [2, 0]


def test_spikes_in_a_row_end_training_and_the_history_is_in_the_checkpoint(run_wrong, spiky, tmp_path):
    """The run resumes after the first of two spikes.

    Without the norms of the checkpoint the second step would not be a spike. Without its count it would be the first.
    """
    half = spiky.until(5, tmp_path)
    guard = SpikeConfig(threshold=5.0, window=3, patience=2)
    with pytest.raises(
        JobFailed, match=r"training stopped at step 6: 2 steps in a row were spikes .*what was saved before is kept"
    ):
        run_wrong(SPIKES, into=half, **{**SPIKY, "spikes": guard})
    assert read_state(half.checkpoint().with_name(step_name(5)))["guard"]["skipped"] == 1


FP16 = {
    "precision": "fp16",
    "optimizer": "adafactor",
    "ema": 0.5,
    "max_steps": 5,
    "clip_norm": 0.5,
    "checkpoints": CheckpointConfig(every_n=1),
    "runtime": {"zero_stage": 2},
}
HUGE = {"loss_scale": 2.0**22}


@pytest.fixture(scope="module")
def overflowing(run_wrong):
    return run_wrong(HUGE, **FP16)


def test_overflows_are_skipped_and_logged_and_lower_the_loss_scale(overflowing):
    skipped = overflowing.records("skipped")
    assert [record["step"] for record in skipped[:2]] == [1, 2]
    assert {(record["reason"], record["gradient_norm"]) for record in skipped} == {("overflow", None)}
    assert [record["loss_scale"] for record in skipped] == [2.0 ** (22 - n) for n in range(len(skipped))]
    updated = [record["step"] for record in overflowing.records("train")]
    assert sorted(updated + [record["step"] for record in skipped]) == [1, 2, 3, 4, 5]
    first = updated[0]
    assert_unchanged(overflowing, 1, first - 1)
    after = overflowing.tensors(step_name(first))
    for key, tensor in after.items():
        if key.startswith("ema."):  # the average starts at the weights after the first update
            assert torch.equal(tensor, after[key.replace("ema.", "model.")])
    state = read_state(overflowing.checkpoint())
    assert state["engine"]["updates"] == len(updated)
    assert state["engine"]["loss_scaler"]["cur_scale"] == 2.0 ** (22 - len(skipped))


def test_fp16_is_near_fp32(prepared, overflowing):
    """fp16 has 11 bits of mantissa, so one value errs by 5e-4. A mean over a thousand tokens errs less.

    The norm is of unscaled gradients. Its error is that of a single rounding.
    """
    record = overflowing.records("train")[0]
    cross_entropy, norm = reference_step(prepared, record["step"])
    assert record["cross_entropy"] == pytest.approx(cross_entropy, rel=5e-4)
    assert record["cross_entropy"] != cross_entropy
    assert record["gradient_norm"] == pytest.approx(norm, rel=5e-3)


def test_fp16_resumes_bitwise_with_its_loss_scale(run_wrong, overflowing, tmp_path):
    """The run resumes after two overflows and an update. The decay of Adafactor counts updates."""
    resumed = run_wrong(HUGE, into=overflowing.until(3, tmp_path), **FP16)
    assert resumed.records("skipped") == overflowing.records("skipped")
    assert_same_bits(resumed, overflowing)
    resumed_state, state = (read_state(outcome.checkpoint()) for outcome in (resumed, overflowing))
    assert resumed_state["engine"] == state["engine"]
    assert resumed_state["guard"] == state["guard"]
    assert len(state["guard"]["norms"]) == state["engine"]["updates"] > 1


def test_a_spike_is_no_overflow(run_wrong):
    """Ten times the loss of one process is too little for an overflow, so the loss scale stays."""
    settings = {"precision": "fp16", "max_steps": 4, "spikes": SpikeConfig(threshold=2.0, window=2)}
    outcome = run_wrong({"factors": {"4": 10.0}}, **settings)
    assert [(record["step"], record["reason"]) for record in outcome.records("skipped")] == [(4, "spike")]
    assert read_state(outcome.checkpoint())["engine"]["loss_scaler"]["cur_scale"] == 2.0**16


def test_fp16_trains_as_fp32_does(run_job):
    """The tolerance is one percent over 30 steps, because rounding moves some near-ties of routers."""
    fp32, fp16 = (run_job(processes=2, ep=2, max_steps=30, precision=p).records("train") for p in ("fp32", "fp16"))
    assert fp32[-1]["cross_entropy"] < fp32[0]["cross_entropy"] - 0.5
    for actual, expected in zip(fp16, fp32, strict=True):
        assert actual["cross_entropy"] == pytest.approx(expected["cross_entropy"], rel=1e-2), actual["step"]


def reference_step(prepared, number):
    """Return the cross-entropy and the gradient norm of a step with initial weights, in float32 on one device."""
    job = make_job(prepared, Path("unused"), processes=1, ep=1)
    data = [EncodedSplit.open(Path(d), "train") for d in job.encoded]
    model = initial_model(job)
    steps = Mixture(job.batch, read_lengths(job.pairs, job.encoded), seed=job.train.seed)
    step = next(itertools.islice(steps, number - 1, None))
    total = 0.0
    for index, group in enumerate(step.groups):
        seed_group(job.train.seed, number, index)
        losses = model(assemble(group, step.shape, data), label_smoothing=job.train.label_smoothing)
        losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups).backward()
        total += float(losses.nll_BT.sum())
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    return total / step.target_tokens, float(norm)
