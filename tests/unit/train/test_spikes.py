"""The guard of steps recognises spikes and overflows, and ends a run after too many spikes."""

import math

import pytest

from pipeline.train.spikes import SpikeConfig, StepGuard


def guard(threshold=3.0, *, fp16=False):
    return StepGuard(SpikeConfig(threshold=threshold, window=3, patience=2), fp16=fp16)


def settle(guard, step, norm, *, cross_entropy=1.0, updated=None, loss_scale=1.0):
    accepted = math.isfinite(norm) and guard.accepts(norm)
    updated = accepted if updated is None else updated
    return guard.settle(step, cross_entropy=cross_entropy, norm=norm, updated=updated, loss_scale=loss_scale)


def test_a_spike_is_beyond_the_median_of_the_last_good_steps():
    watch = guard()
    for step, norm in enumerate([1.0, 50.0, 2.0], start=1):  # nothing is a spike before the window is full
        assert settle(watch, step, norm) is None
    assert settle(watch, 4, 6.0) is None  # three times the median of 1, 50, 2
    event = settle(watch, 5, 18.1)  # more than three times the median of 50, 2, 6
    assert event == {
        "event": "skipped",
        "step": 5,
        "reason": "spike",
        "cross_entropy": 1.0,
        "gradient_norm": 18.1,
        "median_norm": 6.0,
        "loss_scale": 1.0,
    }
    assert settle(watch, 6, 18.0) is None  # the spike did not enter the median


def test_what_is_not_finite_is_a_spike_from_the_first_step_on():
    event = settle(guard(), 1, math.inf, cross_entropy=math.nan)
    assert (event["reason"], event["cross_entropy"], event["gradient_norm"]) == ("spike", None, None)


def test_only_spikes_in_a_row_end_a_run():
    watch = guard()
    for step in (1, 3, 5):
        assert settle(watch, step, math.inf) is not None
        assert settle(watch, step + 1, 1.0) is None
    settle(watch, 7, math.inf)
    with pytest.raises(ValueError, match=r"stopped at step 8: 2 steps in a row were spikes .*train.spikes.patience"):
        settle(watch, 8, math.inf)


def test_without_a_threshold_what_is_not_finite_ends_the_run_and_nothing_else_does():
    watch = guard(threshold=0.0)
    for step, norm in enumerate([1.0, 1.0, 1.0, 1e6], start=1):
        assert settle(watch, step, norm) is None
    with pytest.raises(ValueError, match=r"diverged at step 5: cross-entropy 1\.0, gradient norm inf"):
        settle(watch, 5, math.inf)


def test_a_loss_that_is_not_finite_after_an_update_ends_the_run_whatever_the_threshold():
    with pytest.raises(ValueError, match="diverged at step 1: cross-entropy nan"):
        settle(guard(), 1, 1.0, cross_entropy=math.nan)


def test_an_overflow_of_fp16_is_no_spike_until_there_is_no_scale_left_to_lower():
    watch = guard(threshold=0.0, fp16=True)
    for step in range(1, 10):
        assert settle(watch, step, math.inf, loss_scale=2.0)["reason"] == "overflow"
    with pytest.raises(ValueError, match="diverged at step 10"):
        settle(watch, 10, math.inf, loss_scale=1.0)
    with pytest.raises(ValueError, match="diverged at step 10"):  # the forward pass, which no scale changes
        settle(watch, 10, math.inf, cross_entropy=math.nan, loss_scale=2.0)


def test_a_restored_guard_goes_on():
    watch = guard()
    for step, norm in enumerate([1.0, 2.0, 3.0, 4.0], start=1):
        settle(watch, step, norm)
    settle(watch, 5, math.inf)
    other = guard()
    other.restore(watch.to_json())
    assert other.to_json() == watch.to_json() == {"norms": [2.0, 3.0, 4.0], "skipped": 1}
    assert other.accepts(9.0)
    assert not other.accepts(9.1)
