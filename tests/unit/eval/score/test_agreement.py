"""The agreement of translations: all pairs at once have the scores that sacreBLEU gives to each."""

import random
from statistics import fmean

import pytest

from eval.score.agreement import mean_utilities, pairwise_scores
from eval.score.metrics import scorer_for

UTILITIES = ("chrf", "chrf++", "bleu")
TEXTS = {
    "en": [
        "The file could not be opened.",
        "The file could not be opened",
        "the the the the, the the the",
        "The file could not be opened, because the file is not a file: the file (a file) is open.",
        "A window",
        "?",
        "",
        "  The   file could not  be opened. ",
    ],
    "ja": ["ファイルを開くことができませんでした。", "ファイルを開けませんでした。", "開けません", "File を開く", ""],
    "zh": ["无法打开文件。", "文件无法打开。", "打开打开打开文件", "file"],
}


def brute_force(utility, target, texts):
    scorer = scorer_for(utility, target, by_sentence=True)
    return [[scorer.sentence_score(one, [other]).score for other in texts] for one in texts]


def noisy(seed, count):
    """Return translations as samples of a model are: some words are lost, doubled or exchanged."""
    rng, words = random.Random(seed), TEXTS["en"][3].split()
    return [
        " ".join(rng.choice(words) if rng.random() < 0.2 else w for w in words[: rng.randint(3, 20)])
        for _ in range(count)
    ]


@pytest.mark.parametrize("utility", UTILITIES)
@pytest.mark.parametrize("target", TEXTS)
def test_scores_of_pairs_are_those_of_sacrebleu_to_the_last_bit(utility, target):
    scorer = scorer_for(utility, target, by_sentence=True)
    assert pairwise_scores(scorer, TEXTS[target]) == brute_force(utility, target, TEXTS[target])


@pytest.mark.parametrize("utility", UTILITIES)
def test_scores_of_noisy_samples_are_those_of_sacrebleu(utility):
    texts = noisy(1, 24)
    assert pairwise_scores(scorer_for(utility, "en", by_sentence=True), texts) == brute_force(utility, "en", texts)


@pytest.mark.parametrize("utility", UTILITIES)
def test_a_mean_counts_each_translation_as_often_as_it_occurs(utility):
    texts = [*noisy(2, 5), "A window", *noisy(2, 5)[:2], "A window"]
    assert len(set(texts)) < len(texts) - 2
    means = mean_utilities(scorer_for(utility, "en", by_sentence=True), texts)
    assert means == pytest.approx([fmean(row) for row in brute_force(utility, "en", texts)], rel=1e-15)  # order of sums
    assert means[5] == means[8]


def test_one_translation_agrees_with_itself_and_an_empty_one_with_nothing():
    scorer = scorer_for("chrf", "en", by_sentence=True)
    assert mean_utilities(scorer, ["A window"]) == [100.0]
    assert mean_utilities(scorer, ["", ""]) == [0.0, 0.0]


def test_ter_counts_no_common_ngrams():
    with pytest.raises(AssertionError, match="only BLEU and chrF compare two translations"):
        pairwise_scores(scorer_for("ter", "en"), ["a"])
