import dataclasses

import numpy as np
import pytest

from eval.score.significance import compare, percentile_interval, resample, resampled_sums

REFERENCES = [f"this is sentence number {n} about some {w} thing" for n in range(20) for w in ("red", "old")]
WORSE = [line.replace("some", "any").replace("is", "was") for line in REFERENCES]


def test_the_better_system_has_a_gain_above_zero_and_the_reverse_below() -> None:
    good, bad = resample([REFERENCES, WORSE], REFERENCES, "en", "bleu", n_resamples=200)
    forth, back = compare(good, bad), compare(bad, good)
    assert 0 < forth.ci_low <= forth.delta <= forth.ci_high
    assert (back.delta, back.ci_low, back.ci_high) == (-forth.delta, -forth.ci_high, -forth.ci_low)
    assert forth.p_value == back.p_value == pytest.approx(1 / 201)
    assert (forth.n_resamples, forth.seed) == (200, good.seed)


def test_equal_systems_differ_by_nothing_at_p_one() -> None:
    (same,) = resample([WORSE], REFERENCES, "en", "chrf++", n_resamples=50)
    result = compare(same, same)
    assert (result.delta, result.ci_low, result.ci_high, result.p_value) == (0, 0, 0, 1)


def test_resampling_is_the_same_in_every_call_and_other_with_another_seed() -> None:
    systems = [WORSE[:9] + REFERENCES[9:]]
    (first,), (again,) = (resample(systems, REFERENCES, "en", "bleu") for _ in range(2))
    (other,) = resample(systems, REFERENCES, "en", "bleu", seed=1)
    assert np.array_equal(first.resampled, again.resampled)
    assert not np.array_equal(first.resampled, other.resampled)
    assert "seed:1|" in other.signature


def test_sums_are_those_of_a_loop_over_resamples() -> None:
    stats = np.arange(12, dtype=np.float64).reshape(4, 3)
    indices = np.random.default_rng(7).choice(4, size=(5, 4), replace=True)
    expected = [[sum(stats[i, column] for i in row) for column in range(3)] for row in indices]
    assert resampled_sums(stats, 5, 7).tolist() == expected


def test_interval_leaves_out_one_in_forty_at_either_end() -> None:
    assert percentile_interval(np.arange(80.0)[::-1]) == (2.0, 77.0)
    assert percentile_interval(np.array([3.0])) == (3.0, 3.0)


def test_unpaired_systems_are_refused() -> None:
    (full,) = resample([WORSE], REFERENCES, "en", "bleu", n_resamples=10)
    with pytest.raises(ValueError, match="are not paired"):
        compare(full, dataclasses.replace(full, n=3))
    with pytest.raises(ValueError, match="n_resamples=0"):
        resample([WORSE], REFERENCES, "en", "bleu", n_resamples=0)
    with pytest.raises(ValueError, match="hypotheses=39 lines but references=40"):
        resample([REFERENCES, WORSE[1:]], REFERENCES, "en", "bleu")
