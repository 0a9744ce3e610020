import itertools

import numpy as np
import pytest

from eval.score.seeds import seed_shares
from eval.score.significance import percentile_interval

RESAMPLES = 400
TRIALS = 500


def test_the_variance_of_the_drawn_means_is_the_unbiased_one() -> None:
    """Every draw of two of three seeds is counted by hand: the nine draws are equally likely."""
    scores = np.array([20.0, 23.0, 24.5])
    means = [np.mean(pair) for pair in itertools.product(scores, repeat=2)]
    assert np.var(means) == pytest.approx(np.var(scores, ddof=1) / 3)
    drawn = seed_shares(3, 20_000, "moe") @ scores
    assert sorted(set(drawn.round(9))) == pytest.approx(sorted(set(means)))
    assert drawn.var() == pytest.approx(np.var(means), rel=0.03)
    assert drawn.mean() == pytest.approx(scores.mean(), abs=0.03)


def test_models_trained_together_have_one_draw_and_others_their_own() -> None:
    first, again, other = (seed_shares(4, 500, draw) for draw in ("moe", "moe", "dense"))
    assert (first == again).all()
    assert abs(np.corrcoef(first[:, 0], other[:, 0])[0, 1]) < 0.15
    assert (seed_shares(4, 100, "moe") == first[:100]).all()  # as many resamples as a metric has
    assert (seed_shares(1, 3, "moe") == 1.0).all()


@pytest.mark.parametrize(
    ("num_seeds", "with_seeds", "sentences_alone"), [(2, 0.87, 0.74), (3, 0.91, 0.79), (5, 0.93, 0.85)]
)
def test_intervals_that_count_seeds_cover_the_truth_more_often(
    num_seeds: int, with_seeds: float, sentences_alone: float
) -> None:
    """The true mean is 0. The standard deviation over seeds is twice that over choices of sentences."""
    rng = np.random.default_rng(4)
    hits = {"seeds": 0, "sentences": 0}
    for trial in range(TRIALS):
        seeds, sentences = 2 * rng.normal(size=num_seeds), rng.normal()
        resampled = seeds.mean() + sentences + rng.normal(size=RESAMPLES)  # a bootstrap has the sentences' spread
        drawn = resampled + seed_shares(num_seeds, RESAMPLES, str(trial)) @ seeds - seeds.mean()
        for name, values in (("seeds", drawn), ("sentences", resampled)):
            low, high = percentile_interval(values)
            hits[name] += low <= 0 <= high
    assert hits["seeds"] / TRIALS == pytest.approx(with_seeds, abs=0.04)
    assert hits["sentences"] / TRIALS == pytest.approx(sentences_alone, abs=0.04)
