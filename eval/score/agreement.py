"""The agreement of several translations of one sentence, by which minimum Bayes risk decoding chooses among them.

sacreBLEU scores a pair of translations by the n-grams that they have in common. It extracts them again for every pair.
Here they are extracted once for each translation, and one product of matrices counts those of all pairs. The scores
are sacreBLEU's to the last bit.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from eval.score.metrics import Scorer

Counts = Sequence[Counter[Hashable]]  # n-grams of a translation, a counter for each order


def mean_utilities(scorer: Scorer, translations: Sequence[str]) -> list[float]:
    """Return the mean of the sentence scores of each translation against all translations, itself included.

    Equal translations have equal means, and each of them counts in every mean.

    scorer: BLEU or chrF of `scorer_for(…, by_sentence=True)`.
    """
    texts = list(dict.fromkeys(translations))
    places = [texts.index(translation) for translation in translations]
    scores = pairwise_scores(scorer, texts)
    means = [fsum(row[place] for place in places) / len(places) for row in scores]
    return [means[place] for place in places]


def pairwise_scores(scorer: Scorer, texts: Sequence[str]) -> list[list[float]]:
    """Return `scorer.sentence_score(texts[i], [texts[j]])` in row i, column j."""
    segments = [scorer._preprocess_segment(text) for text in texts]
    counts = [_counts(scorer, segment) for segment in segments]
    sizes = [[counter.total() for counter in of_text] for of_text in counts]
    matches = np.stack([_matches(of_order) for of_order in zip(*counts, strict=True)], axis=-1).tolist()
    return [
        [
            float(scorer._compute_score_from_stats(_statistics(scorer, sizes[i], sizes[j], matches[i][j])).score)
            for j in range(len(texts))
        ]
        for i in range(len(texts))
    ]


def _counts(scorer: Scorer, segment: str) -> Counts:
    """Return the n-grams that a metric counts, by order: those of words for BLEU, and of characters first for chrF."""
    assert isinstance(scorer, BLEU | CHRF), "only BLEU and chrF compare two translations by common n-grams"
    ngrams: Any = scorer._extract_reference_info([segment])["ref_ngrams"]
    if isinstance(scorer, CHRF):
        by_order: Counts = ngrams[0]
        return by_order
    words: Counts = [Counter() for _ in range(scorer.max_ngram_order)]
    for ngram, count in ngrams.items():
        words[len(ngram) - 1][ngram] = count
    return words


def _statistics(scorer: Scorer, hypothesis: Sequence[int], reference: Sequence[int], match: Sequence[int]) -> list[int]:
    """Return the sufficient statistics of a sentence as the metric takes them.

    hypothesis, reference: number of n-grams of each order.
    match: number of n-grams of each order that both have.
    """
    if isinstance(scorer, BLEU):  # lengths in words, which are the 1-grams; then correct and all n-grams
        return [hypothesis[0], reference[0], *match, *hypothesis]
    orders = zip(hypothesis, reference, match, strict=True)
    return [value for own, other, common in orders for value in (own, other, common)]


def _matches(counters: Sequence[Counter[Hashable]]) -> NDArray[np.int64]:
    """Return in row i, column j how many n-grams i and j have in common, where the rarer of two counts decides.

    The second occurrence of an n-gram in a translation is treated as another n-gram, and so on. So an n-gram occurs at
    most once, and the numbers of common ones are a product of matrices of zeros and ones. float32 is exact up to 2^24.
    """
    columns: dict[Hashable, int] = {}
    rows_of: list[int] = []
    columns_of: list[int] = []
    for row, counter in enumerate(counters):
        for ngram, count in counter.items():
            for occurrence in range(count):
                key = (ngram, occurrence) if occurrence else ngram
                columns_of.append(columns.setdefault(key, len(columns)))
                rows_of.append(row)
    occurs = np.zeros((len(counters), len(columns)), dtype=np.float32)
    occurs[rows_of, columns_of] = 1
    return (occurs @ occurs.T).astype(np.int64)
