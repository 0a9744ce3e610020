"""The stream of steps is a function of seed and position. Phases begin at their exact steps, and no row is missed."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.batch.config import GroupShape
from pipeline.batch.lengths import PairLengths, read_lengths, sentence_lengths
from pipeline.batch.mixture import Mixture
from pipeline.batch.shapes import fit_targets
from tests.unit.batch.streams import LONG, config, named, random_lengths, sentences_of, take

STEPS = 24


@st.composite
def curricula(draw):
    """Draw (configuration, lengths, periods by (pair, source)) of three pairs.

    The first pair has two sources, one with a first and a last step. The other pairs have such periods as groups.
    """

    def period():
        begin = draw(st.integers(1, STEPS))
        end = draw(st.sampled_from([0, begin + 1, begin + 2, begin + 9]))
        return {"from_step": begin, "until_step": end}

    sizes = [draw(st.sampled_from([1, 2, 30, 300])) for _ in range(4)]
    rules = [period() for _ in range(3)]
    share = draw(st.sampled_from([None, 0.3, 1.0]))
    mixture = {
        "temperature": draw(st.sampled_from([1.0, 2.0, 100.0])),
        "cap": draw(st.sampled_from([0, 20])),
        "max_repeats": draw(st.sampled_from([0.0, 1.0, 3.0])),
        "groups": {
            "first": {"pairs": ["fr-en"], "share": share if share != 1.0 else 0.4, **rules[0]},
            "second": {"pairs": ["*-tr"], "temperature": draw(st.sampled_from([None, 5.0])), **rules[1]},
        },
        "sources": {"late": {"sources": ["b*"], "share": share if share != 1.0 else 0.9, **rules[2]}},
    }
    lengths = [
        random_lengths(sizes[0] + sizes[1], 1, 30, "de-en", [("web", sizes[0]), ("bt", sizes[1])]),
        random_lengths(sizes[2], 2, 30, "fr-en"),
        random_lengths(sizes[3], 3, 48, "en-tr"),
    ]
    batch = config(mixture, window_steps=draw(st.integers(1, 9)), groups_per_step=draw(st.integers(1, 3)))
    always = {"from_step": 1, "until_step": 0}
    periods = {(0, "web"): always, (0, "bt"): rules[2], (1, "web"): rules[0], (2, "web"): rules[1]}
    return batch, lengths, periods


@settings(max_examples=25, derandomize=True)
@given(curricula(), st.integers(0, STEPS), st.integers(0, 2**32))
def test_the_stream_resumes_anywhere_and_changes_at_exact_steps(case, stop, seed):
    batch, lengths, periods = case
    straight = take(Mixture(batch, lengths, seed=seed), STEPS)
    first = Mixture(batch, lengths, seed=seed)
    head = take(first, stop)
    resumed = Mixture(batch, lengths, seed=seed)
    resumed.restore(json.loads(json.dumps(first.position.state())))
    assert named(head + take(resumed, STEPS - stop)) == named(straight)
    units = resumed.units
    for number, step in enumerate(straight, start=1):
        assert (step.lengths == sentence_lengths(step.sentences, lengths)).all()
        for pair, row in step.sentences.tolist():
            unit = next(u for u in units if u.pair == pair and u.begin <= row < u.end)
            period = periods[pair, unit.source]
            assert period["from_step"] <= number < (period["until_step"] or STEPS + 1), (number, unit)


def test_another_seed_is_another_stream():
    data = [random_lengths(300, 1), random_lengths(40, 2, name="fr-en")]
    first, second = (named(take(Mixture(config(), data, seed=seed), 5)) for seed in (5, 6))
    assert first != second


def test_a_phase_begins_with_what_is_new():
    """A pair that enters at step 8 has its share in that step, for any size of the window.

    A step has some 180 sentences, so three standard deviations are 0.09.
    """
    data = [random_lengths(3000, 1), random_lengths(3000, 2, name="fr-en")]
    mixture = {"groups": {"late": {"pairs": ["fr-en"], "share": 0.8, "from_step": 8}}}
    for window in (1, 5, 64):
        steps = take(Mixture(config(mixture, window_steps=window, groups_per_step=8), data, seed=2), 8)
        shares = [float(np.mean(step.sentences[:, 0])) for step in steps]
        assert shares[:7] == [0.0] * 7
        assert shares[7] == pytest.approx(0.8, abs=0.09)


def test_every_source_goes_through_all_its_rows_before_any_repeats():
    """All epochs are complete, except for the current window and its leftover."""
    data = [random_lengths(200, 1, sources=[("web", 150), ("bt", 50)])]
    stream = Mixture(config({"temperature": 1.0}), data, seed=3)
    steps = []
    while stream.position.cursors[0] < 900:
        steps += take(stream, 1)
    counts = np.bincount(sentences_of(steps)[:, 1], minlength=200)
    for source_counts in (counts[:150], counts[150:]):
        assert source_counts.max() - source_counts.min() <= 2
    assert len(stream.position.leftover) < 200


def test_epochs_differ_in_order():
    data = [random_lengths(50, 1)]
    stream = Mixture(config(), data, seed=3)
    first, second = (stream._draw(np.array([epoch * 50]), np.array([50]))[:, 1] for epoch in (0, 1))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(50))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize(
    ("mixture", "expected"),
    [
        ({"temperature": 1.0}, 0.1),
        ({"temperature": 2.0}, 0.25),
        ({"temperature": 2.0, "max_repeats": 1.5}, 0.15),
        ({"temperature": 1.0, "groups": {"rare": {"pairs": ["fr-en"], "share": 0.5}}}, 0.5),
    ],
)
def test_the_mixture_decides_what_is_drawn(mixture, expected):
    """Shares of 900 and 100 rows: proportional; by square roots 30 and 10; one and a half epochs; half.

    With some 9,000 sentences, three standard deviations are 0.016.
    """
    data = [random_lengths(900, 1), random_lengths(100, 1, name="fr-en")]
    steps = take(Mixture(config(mixture), data, seed=1), 300)
    assert np.mean(sentences_of(steps)[:, 0]) == pytest.approx(expected, abs=0.02)


def test_a_window_costs_no_more_in_a_large_corpus():
    """Windows take few bytes, while a permutation of three million rows would take 24 MB."""
    data = [
        PairLengths(
            name="de-en",
            source=np.full(3_000_000, 9, dtype=np.uint8),
            target=np.full(3_000_000, 6, dtype=np.uint8),
            sources=[("web", 3_000_000)],
        )
    ]
    stream = Mixture(config(), data, seed=1)
    tracemalloc.start()
    take(stream, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_targets_of_zero_are_fitted_to_the_mixture():
    """A uniform mixture of mean lengths 10 -> 5 and 30 -> 15 has half as many target tokens: 25, rounded up to 28."""
    data = [
        PairLengths(name=name, source=np.full(9, s), target=np.full(9, s // 2), sources=[("web", 9)])
        for name, s in (("de-en", 10), ("fr-en", 30))
    ]
    shapes = [GroupShape(rows=4, source=50, target=0), LONG]
    fitted = fit_targets(config(shapes=shapes), data)
    assert fitted.shapes == [GroupShape(rows=4, source=50, target=28), LONG]
    equal = [PairLengths(name="de-en", source=np.full(9, 10), target=np.full(9, 20), sources=[("web", 9)])]
    assert fit_targets(config(shapes=shapes), equal).shapes[0].target == LONG.target


def test_targets_are_fitted_to_the_last_phase():
    """The ratio is 1 : 1 in the first phase and 2 : 1 in the last."""
    even, half = (
        PairLengths(name=name, source=np.full(9, 20), target=np.full(9, t), sources=[("web", 9)])
        for name, t in (("de-en", 20), ("fr-en", 10))
    )
    mixture = {"groups": {"early": {"pairs": ["de-en"], "until_step": 9}, "late": {"pairs": ["fr-en"], "from_step": 9}}}
    shapes = [GroupShape(rows=4, source=40, target=0), LONG]
    assert fit_targets(config(mixture, shapes=shapes), [even, half]).shapes[0].target == 20


def test_positions_of_other_streams_are_refused():
    stream = Mixture(config(), [random_lengths(50)], seed=1)
    state = stream.position.state()
    with pytest.raises(ValueError, match=r"2 sources of pairs, this run has 1.*train\.initialize_from"):
        stream.restore({**state, "cursors": [0, 0]})
    with pytest.raises(ValueError, match=r"is of version 1, this program reads 2.*train\.initialize_from"):
        stream.restore({"window": 0, "offset": 0, "cursors": [0], "leftover": []})


def test_lengths_are_those_of_the_encoded_rows(prepared):
    lengths = read_lengths(prepared.pairs, prepared.encoded)
    assert [pair.name for pair in lengths] == prepared.pairs
    for pair in lengths:
        assert sum(rows for _, rows in pair.sources) == len(pair.source) == len(pair.target) > 0
    steps = take(Mixture(config(shapes=[GroupShape(rows=4, source=96, target=64)]), lengths, seed=1), 3)
    assert {pair for pair, _ in sentences_of(steps).tolist()} == {0, 1}
