"""Packing: every sentence once, nothing over a row's room, steps of one shape."""

import itertools

import numpy as np
import pytest

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.mixture import Mixture, PairLengths, fit_targets, temperature_weights
from pipeline.batch.packing import pack_rows, pack_steps

SHORT, LONG = GroupShape(rows=4, source=32, target=24), GroupShape(rows=2, source=64, target=48)


def lengths(count, seed=0, longest=20):
    rng = np.random.default_rng(seed)
    source = rng.integers(3, longest, size=count)
    target = np.clip((source * rng.uniform(0.5, 1.0, size=count)).astype(int), 2, None)
    return PairLengths(source=source, target=target)


def config(**changes):
    values = {"shapes": [SHORT, LONG], "groups_per_step": 2, "temperature": 2.0, "window_steps": 4}
    return BatchConfig(**{**values, **changes})


def test_rows_hold_every_sentence_once_within_their_room():
    pair = lengths(500)
    rows = pack_rows(pair.source, pair.target, SHORT)
    assert sorted(itertools.chain.from_iterable(rows)) == list(range(500))
    assert max(pair.source[row].sum() for row in rows) <= SHORT.source
    assert max(pair.target[row].sum() for row in rows) <= SHORT.target


def test_rows_are_fuller_than_a_best_fit_by_decreasing_length_leaves_them():
    pair = lengths(3000)
    shape = GroupShape(rows=1, source=96, target=72)
    filled = pair.source.sum() / (len(pack_rows(pair.source, pair.target, shape)) * shape.source)
    assert filled > 0.97


def test_steps_have_one_shape_full_rows_and_leave_the_rest():
    pair = lengths(400, longest=40)
    sentences = np.stack((np.zeros(400, dtype=np.int64), np.arange(400)), axis=1)
    steps, left = pack_steps(
        sentences, pair.source, pair.target, shapes=[SHORT, LONG], groups_per_step=2, rng=np.random.default_rng(1)
    )
    used = [i for step in steps for group in step.groups for row in group for _, i in row]
    assert sorted(used + left[:, 1].tolist()) == list(range(400))
    for step in steps:
        assert [len(group) for group in step.groups] == [step.shape.rows] * 2
        assert step.nonempty_groups == 2
        assert step.target_tokens == sum(pair.target[i] for g in step.groups for row in g for _, i in row)
    assert {step.shape for step in steps} == {SHORT, LONG}
    assert all(
        pair.source[i] > 32 or pair.target[i] > 24
        for s in steps
        if s.shape == LONG
        for g in s.groups
        for r in g
        for _, i in r
    )


def test_validation_keeps_everything_and_pads_with_empty_groups():
    pair = lengths(30)
    sentences = np.stack((np.zeros(30, dtype=np.int64), np.arange(30)), axis=1)
    steps, left = pack_steps(sentences, pair.source, pair.target, shapes=[SHORT, LONG], groups_per_step=8, rng=None)
    assert len(left) == 0
    assert all(len(step.groups) == 8 for step in steps)
    assert steps[-1].nonempty_groups < 8
    assert sorted(i for s in steps for g in s.groups for row in g for _, i in row) == list(range(30))


def test_the_stream_resumes_anywhere_exactly():
    data = [lengths(300, 1), lengths(40, 2)]
    straight = list(itertools.islice(Mixture(config(), data, seed=5), 30))
    for stop in (0, 1, 7, 19):
        first = Mixture(config(), data, seed=5)
        head = list(itertools.islice(iter(first), stop))
        again = Mixture(config(), data, seed=5)
        again.restore(first.state())
        assert head + list(itertools.islice(again, 30 - stop)) == straight
    assert list(itertools.islice(Mixture(config(), data, seed=6), 5)) != straight[:5]


def test_every_pair_goes_through_all_its_sentences_before_any_repeats():
    data = [lengths(200, 1)]
    stream = Mixture(config(temperature=1.0), data, seed=3)
    taken = []
    for step in stream:
        taken += [i for group in step.groups for row in group for _, i in row]
        if stream.state()["cursors"][0] >= 1000:
            break
    counts = np.bincount(taken, minlength=200)
    assert counts.max() - counts.min() <= 2  # whole epochs, but for the window under way and what it left over
    assert len(stream.state()["leftover"]) < 200


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, [0.9, 0.1]), (2.0, [0.75, 0.25]), (1e9, [0.5, 0.5])])
def test_temperature(temperature, expected):
    """n = 900 and 100: proportional; square roots 30 and 10; uniform."""
    assert temperature_weights([900, 100], temperature) == pytest.approx(expected, abs=1e-6)


def test_temperature_decides_what_is_drawn():
    data = [lengths(900, 1), lengths(100, 2)]
    steps = itertools.islice(Mixture(config(), data, seed=1), 200)
    pairs = [p for step in steps for group in step.groups for row in group for p, _ in row]
    assert np.mean(np.array(pairs) == 1) == pytest.approx(0.25, abs=0.02)


def test_targets_of_zero_are_fitted_to_the_mixture():
    """Uniform mixture of mean lengths 10 -> 5 and 30 -> 15: half as many target tokens, 25 rounded up to 28."""
    data = [PairLengths(source=np.full(9, s), target=np.full(9, s // 2)) for s in (10, 30)]
    shapes = [GroupShape(rows=4, source=50, target=0), LONG]
    fitted = fit_targets(config(shapes=shapes, temperature=1e9), data)
    assert fitted.shapes == [GroupShape(rows=4, source=50, target=28), LONG]
    equal = [PairLengths(source=np.full(9, 10), target=np.full(9, 20))]
    assert fit_targets(config(shapes=shapes), equal).shapes[0].target == LONG.target


def test_a_position_of_other_pairs_is_refused():
    stream = Mixture(config(), [lengths(50)], seed=1)
    with pytest.raises(ValueError, match="2 pairs, this run has 1"):
        stream.restore({"window": 0, "offset": 0, "cursors": [0, 0], "leftover": []})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shapes": []}, "batch.shapes is empty"),
        ({"shapes": [GroupShape(rows=1, source=8, target=0)]}, "the last shape bounds"),
        ({"shapes": [LONG, SHORT]}, "must grow on both sides"),
        ({"groups_per_step": 0}, "batch.groups_per_step=0"),
        ({"temperature": 0.5}, "batch.temperature=0.5"),
    ],
)
def test_impossible_batches_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes)
