"""Sampling of segmentations: the same text in other pieces (Kudo, arXiv:1804.10959).

SentencePiece samples too, but its generator (0.2.3) gives two processes with the same seed other numbers. So its best
segmentations of a word are drawn from here, by its scores and the caller's generator. A segmentation of a text is one
of each of its words, because no piece goes beyond a space.
"""

from array import array
from bisect import bisect
from functools import lru_cache
from itertools import accumulate
from math import exp
from random import Random
from typing import Any, NamedTuple

from pipeline.vocab.vocabulary import Vocabulary

_SPACE = "\u2581"  # SentencePiece's sign for a space
_NBEST = 64
_MOST_WORDS = 1 << 13  # words whose best _NBEST segmentations are kept in memory; fewer where each has more of them
_LONGEST = 24  # characters of a word that is kept; longer ones, such as sentences of Chinese, seldom come again


class _Segmentations(NamedTuple):
    """The best segmentations of a word, in arrays, because thousands of words are kept.

    ids: those of all segmentations, one after another.
    ends: place in `ids` after each segmentation.
    bounds: sums of their probabilities, up to each of them.
    """

    ids: "array[int]"
    ends: "array[int]"
    bounds: "array[float]"

    def segmentation(self, number: int) -> "array[int]":
        """Return the ids of a segmentation."""
        return self.ids[self.ends[number - 1] if number else 0 : self.ends[number]]


class SubwordSampler:
    """Draws segmentations by a SentencePiece model.

    A segmentation of a word has a probability in proportion to exp(alpha times its score) among the best `nbest`.
    """

    def __init__(self, model: Any, *, alpha: float, nbest: int) -> None:
        self._model, self._alpha, self._nbest = model, alpha, nbest
        self._cached = lru_cache(maxsize=_MOST_WORDS * _NBEST // max(nbest, _NBEST))(self._best)

    def sample(self, text: str, rng: Random) -> list[int]:
        """Return the ids of a text in one of its segmentations."""
        ids: list[int] = []
        for word in text.split(" "):  # other spaces have pieces of their own in some models
            if word:
                best = self._cached(word) if len(word) <= _LONGEST else self._best(word)
                ids += best.segmentation(min(bisect(best.bounds, rng.random()), len(best.bounds) - 1))
        return ids

    def _best(self, word: str) -> _Segmentations:
        segmentations: list[list[int]] = self._model.nbest_encode(word, nbest_size=self._nbest)
        scores = [sum(map(self._model.get_score, ids)) for ids in segmentations]
        highest = max(scores)
        weights = [exp(self._alpha * (score - highest)) for score in scores]
        total = sum(weights)
        return _Segmentations(
            ids=array("I", [token for ids in segmentations for token in ids]),
            ends=array("I", accumulate(map(len, segmentations))),
            bounds=array("d", [part / total for part in accumulate(weights)]),
        )


def check_samples(vocabulary: Vocabulary) -> None:
    """Raise ValueError if the models of a vocabulary cannot be sampled from word by word.

    Those of BPE cannot say which segmentations are best. Those without a dummy prefix would lose the spaces.
    """
    for model in (vocabulary.source_model, vocabulary.target_model):
        try:
            model.nbest_encode("a", nbest_size=2)
        except RuntimeError as error:
            raise ValueError(
                f"batch.augment.subwords needs a unigram vocabulary, and {vocabulary.directory} is of another kind "
                f"({error}); leave subwords out"
            ) from error
        if _SPACE not in "".join(model.encode("a", out_type=str)):
            raise ValueError(
                f"batch.augment.subwords needs a vocabulary that marks the beginning of a text as that of a word, and "
                f"{vocabulary.directory} does not; leave subwords out"
            )
