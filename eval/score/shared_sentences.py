"""Bootstrap resamples that all pairs share: a sentence that several test sets have is drawn equally often in all.

A multi-way test set is one text in many languages. The scores of its pairs rise and fall together, so their mean is
less certain than the mean over independent sets. Therefore a resample draws sentences with their translations in all
pairs (a cluster bootstrap). It is a Poisson bootstrap (Hanley and MacGibbon 2006): each sentence is drawn a Poisson(1)
number of times, which depends on the seed and on the sentence alone. This works for aligned, partly overlapping and
disjoint test sets.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4096  # rows whose counts are in memory together

Text = tuple[str, str, int]  # language, text, and its number among equal texts of a test set, from 1


class SharedSentences:
    """An index of the sentences of all test sets.

    Rows are one sentence if they have a text of the same language in common, directly or through other rows. If a text
    occurs several times in a set, its kth occurrence belongs to the kth in another set. So equal rows of one set stay
    apart. Rows of other sets can still join two rows of one set.
    """

    def __init__(self) -> None:
        self._parents: dict[Text, Text] = {}

    def add(self, languages: tuple[str, str], sources: Sequence[str], references: Sequence[str]) -> None:
        """Add the test set of a pair. Call this for all sets before `numbers`."""
        for source, reference in _rows(languages, sources, references):
            low, high = sorted((self._root(source), self._root(reference)))
            self._parents[high] = low

    def numbers(self, languages: tuple[str, str], sources: Sequence[str], references: Sequence[str]) -> list[int]:
        """Return a number of 64 bits for every row of a test set. Rows that are one sentence have equal numbers."""
        roots = (self._root(source) for source, _ in _rows(languages, sources, references))
        digests = (hashlib.blake2b(repr(root).encode(), digest_size=8).digest() for root in roots)
        return [int.from_bytes(digest) for digest in digests]

    def _root(self, text: Text) -> Text:
        path = []
        while (parent := self._parents.setdefault(text, text)) != text:
            path.append(text)
            text = parent
        self._parents.update(dict.fromkeys(path, text))
        return text


def joint_sums(
    stats: NDArray[np.float64], sentences: Sequence[int], n_resamples: int, seed: int
) -> NDArray[np.float64]:
    """Return the column sums of a test set's statistics in each joint resample, [n_resamples, columns].

    The sums are exact whole numbers.

    stats: statistics of the test set, [rows, columns].
    sentences: the number of each row, from `SharedSentences.numbers`.
    """
    sums = np.zeros((n_resamples, stats.shape[1]))
    for start in range(0, len(stats), _BLOCK):
        part = sentences[start : start + _BLOCK]
        counts = [np.random.default_rng((seed, sentence)).poisson(1.0, n_resamples) for sentence in part]
        sums += np.stack(counts, axis=1).astype(np.float64) @ stats[start : start + _BLOCK]
    return sums


def _rows(languages: tuple[str, str], sources: Sequence[str], references: Sequence[str]) -> Iterator[tuple[Text, Text]]:
    counts: Counter[tuple[str, str]] = Counter()
    for texts in zip(sources, references, strict=True):
        sides = list(zip(languages, texts, strict=True))
        counts.update(sides)
        source, reference = ((language, text, counts[language, text]) for language, text in sides)
        yield source, reference
