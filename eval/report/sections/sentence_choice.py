"""The sentences of a test set that a report shows: evenly spaced ones, the largest differences, the best, the worst."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eval.score.metrics import score_from_sums, scorer_for, sentence_statistics

LEGIBLE = range(25, 201)  # characters of a reference that fits into a column and has more than a word or two
EVENLY, DIFFERENCES, BEST, WORST = "evenly spaced", "largest differences", "best", "worst"


def legible_places(references: Sequence[str], at_least: int) -> list[int]:
    """Return the places of references of legible length, without repeated references.

    If these are fewer than `at_least`, all places are returned.
    """
    first = {reference: place for place, reference in reversed(list(enumerate(references)))}
    places = sorted(place for reference, place in first.items() if len(reference) in LEGIBLE)
    return places if len(places) >= at_least else list(range(len(references)))


def sentence_scores(
    systems: Sequence[Sequence[str]], references: Sequence[str], tgt: str, metric: str
) -> NDArray[np.float64]:
    """Return the scores [systems, sentences] of single lines, as `sacrebleu --sentence-level` computes them."""
    scorer = scorer_for(metric, tgt, references=[references], by_sentence=True)
    return np.array([[score_from_sums(scorer, row) for row in sentence_statistics(scorer, lines)] for lines in systems])


def evenly_spaced(places: Sequence[int], count: int) -> list[int]:
    """Return `count` evenly spaced elements of the places, or all if they are fewer."""
    count = min(count, len(places))
    return [places[(2 * k + 1) * len(places) // (2 * count)] for k in range(count)]


def choose(places: Sequence[int], scores: NDArray[np.float64], count: int) -> Mapping[str, list[int]]:
    """Return at most `count` places of each kind, none twice. Kinds without a place are left out.

    A difference is the score of the best system minus that of the worst, and above zero. Best and worst places have the
    highest and lowest mean score of all systems. Equal scores are in the order of the test set.

    scores: scores [systems, places].
    """
    choice = {EVENLY: evenly_spaced(places, count)}
    spread = scores.max(axis=0) - scores.min(axis=0)
    mean = scores.mean(axis=0)
    for kind, order in ((DIFFERENCES, -spread), (BEST, -mean), (WORST, mean)):
        used_places = {place for kind_places in choice.values() for place in kind_places}
        columns = [int(column) for column in np.argsort(order, kind="stable") if places[column] not in used_places]
        if kind == DIFFERENCES:
            columns = [column for column in columns if spread[column] > 0]
        choice[kind] = [places[column] for column in columns[:count]]
    return {kind: kind_places for kind, kind_places in choice.items() if kind_places}
