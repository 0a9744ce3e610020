"""Bootstrap resamples that pairs have in common: where test sets share sentences, these come and go in all of them.

Multi-way test sets are one text in many languages, so the scores of their pairs rise and fall together, and the mean
over pairs is less certain than that of independent sets. What is resampled is then the sentence, with its translations
in all pairs (a cluster bootstrap), by the Poisson bootstrap (Hanley and MacGibbon 2006): each sentence is taken a
Poisson(1) number of times, which depends on the seed and on the sentence alone. So aligned, partly overlapping and
disjoint sets are resampled in one way.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4096  # rows whose counts are held at once

Text = tuple[str, str, int]  # language, text, and the how many-th of equal texts of a test set


class SharedSentences:
    """Rows of test sets that have a text of one language in common are one sentence, and so are those that are linked
    by other rows. The kth of equal texts in a set is taken for the kth in another, so that rows of one set differ."""

    def __init__(self) -> None:
        self._parents: dict[Text, Text] = {}

    def add(self, languages: tuple[str, str], sources: Sequence[str], references: Sequence[str]) -> None:
        """Take in the test set of a pair. All sets are added before any is numbered."""
        for source, reference in _rows(languages, sources, references):
            low, high = sorted((self._root(source), self._root(reference)))
            self._parents[high] = low

    def numbers(self, languages: tuple[str, str], sources: Sequence[str], references: Sequence[str]) -> list[int]:
        """A number of 64 bits for every row of a test set, equal where rows are one sentence."""
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
    """Column sums of a test set's statistics in each joint resample, (n_resamples, columns); exact whole numbers.

    sentences: the number of each row, as `SharedSentences` gives it.
    """
    sums = np.zeros((n_resamples, stats.shape[1]))
    for start in range(0, len(stats), _BLOCK):
        part = sentences[start : start + _BLOCK]
        counts = [np.random.default_rng((seed, sentence)).poisson(1.0, n_resamples) for sentence in part]
        sums += np.stack(counts, axis=1).astype(np.float64) @ stats[start : start + _BLOCK]
    return sums


def _rows(languages: tuple[str, str], sources: Sequence[str], references: Sequence[str]) -> Iterator[tuple[Text, Text]]:
    seen: Counter[tuple[str, str]] = Counter()
    for texts in zip(sources, references, strict=True):
        sides = list(zip(languages, texts, strict=True))
        seen.update(sides)
        source, reference = ((language, text, seen[language, text]) for language, text in sides)
        yield source, reference
