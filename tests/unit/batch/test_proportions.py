"""Probabilities of the mixture: properties that hold for every configuration, and numbers by hand."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.batch.mixture_config import MixtureConfig, PairGroup, SourceRule
from pipeline.batch.proportions import groups_of, phases, units

PAIRS = ["de-en", "fr-en", "en-de", "en-fr", "de-fr"]
COUNTS = st.lists(st.lists(st.integers(0, 10**7), min_size=1, max_size=3), min_size=5, max_size=5)


def drawn(config, counts, pairs=PAIRS, step=1):
    """Return (probability of each unit, units) at a step. Sources are named a, b, c."""
    all_units = units([list(zip("abc", rows, strict=False)) for rows in counts])
    return [phase for phase in phases(config, pairs, all_units) if phase.from_step <= step][-1].probabilities, all_units


def of_pairs(probabilities, all_units):
    return np.bincount([unit.pair for unit in all_units], weights=probabilities, minlength=len(PAIRS))


@st.composite
def mixtures(draw):
    share = st.sampled_from([None, 0.1, 0.4])
    temperature = st.sampled_from([None, 1.0, 3.0, 100.0])
    return MixtureConfig(
        temperature=draw(st.sampled_from([1.0, 2.0, 5.0])),
        cap=draw(st.sampled_from([0, 1000])),
        groups={
            "into": PairGroup(pairs=["*-en"], share=draw(share), temperature=draw(temperature)),
            "from": PairGroup(pairs=["en-*"], share=draw(share), temperature=draw(temperature), cap=draw(st.just(0))),
        },
    )


@settings(max_examples=60, derandomize=True)
@given(mixtures(), COUNTS, st.sampled_from([1.0, 1.5, 20.0]))
def test_shares_sum_to_one_and_no_row_is_drawn_too_often(config, counts, max_repeats):
    assume(all(sum(of_pair) for of_pair in counts))
    free, all_units = drawn(config, counts)
    bounded, _ = drawn(MixtureConfig(**{**vars(config), "max_repeats": max_repeats}), counts)
    rows = np.array([unit.rows for unit in all_units])
    for probabilities in (free, bounded):
        assert probabilities.sum() == pytest.approx(1)
        assert ((probabilities > 0) == (rows > 0)).all()
    assert (bounded <= max_repeats * rows / rows.sum() * (1 + 1e-9)).all()
    if (free <= max_repeats * rows / rows.sum()).all():
        assert bounded == pytest.approx(free)
    for name, group in config.groups.items():
        in_group = [groups_of(config, PAIRS)[unit.pair] == name for unit in all_units]
        if group.share:
            assert free[in_group].sum() == pytest.approx(group.share)


@settings(max_examples=30, derandomize=True)
@given(mixtures(), COUNTS)
def test_cutting_a_corpus_into_more_sources_changes_nothing(config, counts):
    assume(all(sum(of_pair) for of_pair in counts))
    whole = drawn(config, [[sum(of_pair)] for of_pair in counts])
    assert of_pairs(*drawn(config, counts)) == pytest.approx(of_pairs(*whole))


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, [0.9, 0.1]), (2.0, [0.75, 0.25]), (1e9, [0.5, 0.5])])
def test_temperature(temperature, expected):
    """Shares of 900 and 100 rows: proportional; by square roots 30 and 10; uniform."""
    shares, _ = drawn(MixtureConfig(temperature=temperature), [[900], [100]], ["de-en", "fr-en"])
    assert shares == pytest.approx(expected, abs=1e-6)


def test_a_group_alone_changes_nothing():
    counts = [[900], [100], [400], [25], [1]]
    plain, _ = drawn(MixtureConfig(temperature=2.0), counts)
    grouped, _ = drawn(MixtureConfig(temperature=2.0, groups={"a": PairGroup(pairs=["*-en", "de-*"])}), counts)
    assert grouped == pytest.approx(plain)
    assert plain == pytest.approx(np.array([30, 10, 20, 5, 1]) / 66)


def test_the_excess_goes_to_the_others_in_proportion():
    """Uniform over 800, 150 and 50 rows, 1.5 repeats leave 0.225 and 0.075, and the first gets the rest."""
    config = MixtureConfig(temperature=1e9, max_repeats=1.5)
    assert drawn(config, [[800], [150], [50]], PAIRS[:3])[0] == pytest.approx([0.7, 0.225, 0.075])


def test_shares_of_sources_are_of_their_pair():
    rule = SourceRule(sources=["b"], share=0.25, weight=0.5)
    config = MixtureConfig(sources={"synthetic": rule})
    shares, _ = drawn(config, [[100, 200], [200]], PAIRS[:2])
    assert shares == pytest.approx([0.375, 0.125, 0.5])  # 100 + 200 / 2 rows count, as many as in the other pair


def test_shares_are_relative_where_there_is_no_rest():
    groups = {"into": PairGroup(pairs=["*-en"], share=0.2), "from": PairGroup(pairs=["*"], share=0.6)}
    shares, _ = drawn(MixtureConfig(groups=groups), [[5], [5], [10], [0], [0]])
    assert shares == pytest.approx([0.125, 0.125, 0.75, 0, 0])


def test_a_share_waits_for_its_group():
    groups = {"late": PairGroup(pairs=["de-en"], share=0.5, from_step=3)}
    for step, expected in ((2, [0, 0.75, 0.25]), (3, [0.5, 0.375, 0.125])):
        shares, _ = drawn(MixtureConfig(groups=groups), [[7], [30], [10]], PAIRS[:3], step)
        assert shares == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cap": -1}, r"batch\.mixture\.cap=-1"),
        ({"temperature": float("nan")}, r"batch\.mixture\.temperature=nan"),
        ({"groups": {"a": PairGroup(pairs=[])}}, r"groups\.a\.pairs is empty"),
        ({"groups": {"a": PairGroup(pairs=["*"], share=1.5)}}, r"groups\.a\.share=1\.5 must lie in \(0, 1\]"),
        ({"groups": {"a": PairGroup(pairs=["*"], from_step=0)}}, r"groups\.a\.from_step=0 must be at least 1"),
        ({"groups": {"a": PairGroup(pairs=["*"], from_step=5, until_step=5)}}, r"until_step=5 must come after"),
        ({"sources": {"b": SourceRule(sources=["x"], weight=0.0)}}, r"sources\.b\.weight=0\.0 must be positive"),
        ({"sources": {"b": SourceRule(sources=[])}}, r"sources\.b\.sources is empty"),
    ],
)
def test_impossible_mixtures_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        MixtureConfig(**values)


def test_shares_of_sources_that_leave_nothing_are_refused():
    config = MixtureConfig(sources={"x": SourceRule(sources=["a"], share=1.0)})
    with pytest.raises(ValueError, match=r"shares of the sources of de-en sum to 1 and leave nothing .*\(x 1\.0\)"):
        drawn(config, [[5, 5], [5]], PAIRS[:2])
