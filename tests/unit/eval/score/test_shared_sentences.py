"""Resamples that pairs share: the rows that are one sentence, and the interval of a mean over pairs."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from eval.score.shared_sentences import SharedSentences, joint_sums
from eval.score.significance import NUM_RESAMPLES, SEED, percentile_interval, resample, resampled_sums

Rows = list[tuple[str, str]]


def numbered(**sets: Rows) -> dict[str, list[int]]:
    """Return the numbers of the rows of test sets by pair. The name de_en has the languages de and en."""
    shared = SharedSentences()
    test_sets = {name: ((name[:2], name[3:]), *map(list, zip(*rows, strict=True))) for name, rows in sets.items()}
    for arguments in test_sets.values():
        shared.add(*arguments)
    return {name: shared.numbers(*arguments) for name, arguments in test_sets.items()}


def test_rows_with_a_text_in_common_are_one_sentence() -> None:
    numbers = numbered(
        de_en=[("eins", "one"), ("zwei", "two"), ("drei", "three")],
        fr_en=[("trois", "three"), ("un", "one")],  # fewer rows, in another order
        en_es=[("two", "dos"), ("four", "cuatro")],  # the shared side is the source
        fr_es=[("un", "uno"), ("quatre", "cuatro")],  # linked by French and by Spanish, not by English
        it_sv=[("one", "eins")],  # the same letters in other languages
    )
    one, two, three = numbers["de_en"]
    assert numbers["fr_en"] == [three, one]
    four = numbers["en_es"][1]
    assert numbers["en_es"] == [two, four]
    assert numbers["fr_es"] == [one, four]
    assert len({one, two, three, four, *numbers["it_sv"]}) == 5


def test_equal_texts_of_a_set_stay_different_rows_and_meet_those_of_another() -> None:
    numbers = numbered(de_en=[("a", "ok"), ("b", "ok")], fr_en=[("c", "ok"), ("d", "ok"), ("e", "ok")])
    assert numbers["fr_en"][:2] == numbers["de_en"]
    assert len(set(numbers["fr_en"])) == 3


def test_the_order_of_sets_changes_no_number() -> None:
    sets = {"de_en": [("eins", "one")], "fr_es": [("un", "uno")], "fr_en": [("un", "one")]}
    assert numbered(**sets) == numbered(**dict(reversed(sets.items())))


def test_sums_are_those_of_counts_that_depend_on_the_sentence_alone() -> None:
    rng = np.random.default_rng(0)
    stats = rng.integers(0, 9, size=(5000, 2)).astype(np.float64)  # more than a block
    sentences = list(range(5000))
    sums = joint_sums(stats, sentences, 10, 1)
    backwards = joint_sums(stats[::-1], sentences[::-1], 10, 1)
    assert np.array_equal(sums, backwards)
    parts = joint_sums(stats[:7], sentences[:7], 10, 1) + joint_sums(stats[7:], sentences[7:], 10, 1)
    assert np.array_equal(sums, parts)
    assert not np.array_equal(sums, joint_sums(stats, sentences, 10, 2))


def test_joint_scores_are_sacrebleus_of_lines_repeated() -> None:
    references = [f"this is line {n} of a text about colour number {n * n}" for n in range(12)]
    systems = [[line.replace(old, new) for line in references] for old, new in (("text", "book"), ("is line", "line"))]
    sentences = list(range(100, 112))
    scored = resample(systems, references, "en", "bleu", n_resamples=10, sentences=sentences)
    (plain, _), scorer = resample(systems, references, "en", "bleu", n_resamples=10), BLEU()
    assert np.array_equal(scored[0].resampled, plain.resampled)
    assert (scored[0].ci_low, scored[0].ci_high, plain.joint) == (plain.ci_low, plain.ci_high, None)
    drawn = [np.random.default_rng((SEED, sentence)).poisson(1.0, NUM_RESAMPLES) for sentence in sentences]
    for system, result in zip(systems, scored, strict=True):
        assert result.joint is not None
        assert len(result.joint) == NUM_RESAMPLES
        for number in range(20):
            rows = [row for row, counts in enumerate(drawn) for _ in range(counts[number])]
            expected = scorer.corpus_score([system[row] for row in rows], [[references[row] for row in rows]]).score
            assert result.joint[number] == pytest.approx(expected, abs=1e-9)  # one sum in another order


# A simulated score is the mean over a set's rows of the quality of the sentence and of its translation, both normal.
PAIRS, LINES, RESAMPLES, TRIALS, COMMON = 6, 60, 100, 150, 1.5
Statistics = list[NDArray[np.float64]]


def simulated(rng: np.random.Generator, shared: bool) -> tuple[Statistics, list[list[int]]]:
    """Return the statistics (score, rows) of every pair, with true mean 0, and the sentences of their rows."""
    quality = COMMON * rng.normal(size=(PAIRS, LINES))
    numbers = rng.integers(1 << 62, size=(PAIRS, LINES))
    if shared:
        quality[:], numbers[:] = quality[0], numbers[0]
    scores = quality + rng.normal(size=(PAIRS, LINES))
    return [np.stack([row, np.ones(LINES)], axis=1) for row in scores], numbers.tolist()


def joint_interval(sets: Statistics, sentences: list[list[int]]) -> tuple[float, float]:
    sums = [joint_sums(stats, rows, RESAMPLES, SEED) for stats, rows in zip(sets, sentences, strict=True)]
    return percentile_interval(np.mean([total / count for total, count in (part.T for part in sums)], axis=0))


def mover_interval(sets: Statistics) -> tuple[float, float]:
    """Return MOVER's interval (Zou and Donner 2008), which adds squared half-widths as for independent sets."""
    means = np.array([stats[:, 0].mean() for stats in sets])
    resampled = [resampled_sums(stats, RESAMPLES, seed) for seed, stats in enumerate(sets)]
    low, high = np.array([percentile_interval(sums[:, 0] / sums[:, 1]) for sums in resampled]).T
    down, up = (np.sqrt(((bound - means) ** 2).sum()) / PAIRS for bound in (low, high))
    return means.mean() - down, means.mean() + up


@pytest.mark.parametrize(("shared", "mover_covers", "relative_width"), [(True, 0.64, 1 / 0.473), (False, 0.93, 1.0)])
def test_a_mean_over_pairs_is_covered_whether_or_not_sets_share_sentences(
    shared: bool, mover_covers: float, relative_width: float
) -> None:
    """The joint interval covers the truth in 93 % of trials: 95 %, less 1 % for 60 lines and 1 % for 100 resamples.

    MOVER's interval does so for disjoint sets only, where both are equally wide. In shared sets, 6 pairs have a common
    variance of 1.5² and 1 of their own. The true standard error is sqrt(2.25 + 1 / 6), but MOVER takes sqrt(3.25 / 6),
    which is 0.473 of it and covers 64 % of a normal distribution.
    """
    rng = np.random.default_rng(3)
    hits, widths = {"joint": 0, "mover": 0}, {"joint": 0.0, "mover": 0.0}
    for _ in range(TRIALS):
        sets, sentences = simulated(rng, shared)
        for name, (low, high) in (("joint", joint_interval(sets, sentences)), ("mover", mover_interval(sets))):
            hits[name] += low <= 0 <= high
            widths[name] += high - low
    # three standard errors of a share of 150 trials
    assert hits["joint"] / TRIALS == pytest.approx(0.93, abs=0.063)
    assert hits["mover"] / TRIALS == pytest.approx(mover_covers, abs=0.118 if shared else 0.063)
    # quantiles of 100 resamples have an error of some 15 %, and the mean over 150 trials 1 %; Poisson counts and
    # unequal half-widths add 1 % each
    assert widths["joint"] / widths["mover"] == pytest.approx(relative_width, rel=0.04)
